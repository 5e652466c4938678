"""The table that ``stallward fidelity`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stallward.evaluation.render import number

_ERRORS: Final = ("p50", "p95", "p99", "work")
_HEADERS: Final = (
    "scenario",
    "arm left out",
    "p95 live ms",
    "p95 twin ms",
    "work live",
    "work twin",
    *(f"err {name}" for name in _ERRORS),
    "floor p95",
)


def fidelity_rows(
    found: Mapping[str, Any],
) -> tuple[tuple[str, ...], list[tuple[str, ...]], list[str]]:
    """Headers, rows and closing lines of the table."""
    rows = [
        (
            row["scenario"],
            row["arm"],
            number(row["live_ms"]["p95"], "ms"),
            number(row["twin_ms"]["p95"], "ms"),
            number(row["live_work"], "share"),
            number(row["twin_work"], "share"),
            *(_error(row["errors"][name]) for name in _ERRORS),
            _error(row["floor"]["p95"]),
        )
        for row in found["arms"]
    ]
    notes = [
        f"{what}: median error {_error(found[f'{name}_median'])}, "
        f"worst {_error(found[f'{name}_worst'])}"
        for name, what in (
            ("p95_error", "p95"),
            ("p99_error", "p99"),
            ("background_error", "background work"),
        )
    ]
    notes += [
        f"{name}: rank correlation of p95 {_error(values['spearman'])}, "
        f"{values['effects_right']} of {values['effects_counted']} certain effects with the "
        "right sign"
        for name, values in found["scenarios"].items()
    ]
    return _HEADERS, rows, notes


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
