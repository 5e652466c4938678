"""Contention degrees as a table. Pure."""

from __future__ import annotations

from stallward.papers.experiments.contention import ContentionFigures, ContentionResult


def contention_rows(
    result: ContentionResult,
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The headers and a row for each application, the highest degree first."""
    headers = ("application", "needs MiB", "sub-tasks", "alone s", "together s", "degree")
    rows: list[tuple[str, ...]] = [
        (
            one.name,
            f"{one.memory_bytes / 2**20:.0f}",
            str(one.subtasks),
            f"{one.alone_s:.4g}",
            f"{one.together_s:.4g}",
            _degree(one),
        )
        for one in result.applications
    ]
    return headers, rows


def _degree(one: ContentionFigures) -> str:
    figure = one.degree
    if figure.value is None:
        return "-"
    if figure.low is None or figure.high is None:
        return f"{figure.value:.3f}"
    return f"{figure.value:.3f} ({figure.low:.3f} to {figure.high:.3f})"
