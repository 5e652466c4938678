"""The table that ``stallward fidelity`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stallward.evaluation.render import number

_ERRORS: Final = ("p50", "p95", "p99", "work")
_FLOORS: Final = ("p95", "p99", "work")
_MEDIAN: Final = "0.15"
_WORST: Final = "0.25"
_WORK: Final = "0.10"
_NOMINAL: Final = 11.0 / 13.0
"""A thirteenth draw lies between the least and the largest of twelve so often."""
_HEADERS: Final = (
    "scenario",
    "arm",
    "p95 live ms",
    "p95 twin ms",
    "work live",
    "work twin",
    *(f"err {name}" for name in _ERRORS),
    *(f"floor {name}" for name in _FLOORS),
    "distance",
    "replay's",
    "live's own",
    "covered",
)


def mean_distance(row: Mapping[str, Any], of: str) -> float | None:
    """Mean over signals of the distance of the ``twin``, of ``replay`` or of the ``floor``."""
    values = list(row["distances"][of].values())
    return sum(values) / len(values) if values else None


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
            *(_error(row["floor"][name]) for name in _FLOORS),
            *(_error(mean_distance(row, of)) for of in ("twin", "replay", "floor")),
            f"{sum(row['covered'].values())}/{len(row['covered'])}",
        )
        for row in found["arms"]
    ]
    return _HEADERS, rows, fidelity_notes(found)


def fidelity_notes(found: Mapping[str, Any]) -> list[str]:
    """What all arms together come to, each figure beside its target."""
    notes = [
        f"{what}: median error {_error(found[f'{name}_median'])}, "
        f"worst {_error(found[f'{name}_worst'])}{target}"
        for name, what, target in (
            ("p95_error", "p95", f" (targets {_MEDIAN} and {_WORST}{_floor(found, 'p95')})"),
            ("p99_error", "p99", f" (targets {_MEDIAN} and {_WORST}{_floor(found, 'p99')})"),
            ("background_error", "background work", f" (target {_WORK})"),
        )
    ]
    signs = found["effect_signs_right"]
    notes += [
        f"effects: {number(signs, 'share')} of {found['effects_counted']} certain ones have the "
        "right sign (target 100 %)",
        f"rank correlation of p95: median {_error(found['spearman'])}, worst "
        f"{_error(found['spearman_worst'])} (target 0.9)",
        f"distance: {_error(found['distance_vs_replay'])} of naive replay's (target 0.45), "
        f"{_error(found['distance_vs_noise_floor'])} times live against live",
        f"coverage: {number(found['covered'], 'share')} of live figures lie among those of the "
        f"twin's blocks ({number(_NOMINAL, 'share')} would, were they drawn alike)",
    ]
    return notes


def _floor(found: Mapping[str, Any], name: str) -> str:
    """The floor, where it is larger than the target."""
    floor = found[f"{name}_floor_median"]
    return f"; live against live {_error(floor)}" if floor is not None else ""


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
