"""The figures of a benchmark, as a table or as JSON."""

from __future__ import annotations

from stallward.actuator.cli import output


def print_figures(
    figures: dict[str, float | None], rows: list[tuple[str, str, str]], *, as_json: bool
) -> None:
    """Print the figures, or as a table their rows."""
    if as_json:
        output.print_json(figures)
        return
    output.table(("measure", "value", "what it is"), rows)
