"""The table that ``stallward fidelity`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from stallward.evaluation.report.text import number

_ERRORS: Final = ("p50", "p95", "p99", "work")
_FLOORS: Final = ("p95", "p99", "work")
_DISTANCES: Final = {"twin": "distance", "replay": "replay's", "floor": "live's own"}
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
    errors = [
        f"{what}: median error {_aimed(found, f'{name}_error_median')}, "
        f"worst {_aimed(found, f'{name}_error_worst')}"
        for name, what in (("p95", "p95"), ("p99", "p99"), ("background", "background work"))
    ]
    return [
        *errors,
        f"effects: of {found['effects_counted']} certain ones the right sign have "
        f"{_aimed(found, 'effect_signs_right')}",
        f"rank correlation of p95: median {_aimed(found, 'spearman')}, worst "
        f"{_error(found['spearman_worst'])}",
        f"distance: {_aimed(found, 'distance_vs_replay')} of naive replay's, "
        f"{_error(found['distance_vs_noise_floor'])} times live against live",
        f"coverage: {number(found['covered'], 'share')} of live figures lie among those of the "
        f"twin's blocks ({number(_NOMINAL, 'share')} would, were they drawn alike)",
        *(_replaced(found["not_run"]) if found["not_run"] else ()),
    ]


def _replaced(not_run: Sequence[str]) -> list[str]:
    return [f"recorded, but not run: their policy has been replaced since ({', '.join(not_run)})"]


def signal_rows(
    found: Mapping[str, Any],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows of the distances of every signal, means over arms."""
    means = {of: mean_distances(found["arms"], of) for of in _DISTANCES}
    rows = [(name, *(_error(means[of].get(name)) for of in _DISTANCES)) for name in means["twin"]]
    return ("signal", *_DISTANCES.values()), rows


def mean_distances(rows: Sequence[Mapping[str, Any]], of: str) -> dict[str, float]:
    """Mean over arms of each signal's distance of the ``twin``, of ``replay`` or the ``floor``."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row["distances"][of].items():
            found.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def _aimed(found: Mapping[str, Any], key: str) -> str:
    """A figure, its target, if it has one, and whether it is met."""
    aim = found["targets"].get(key)
    if aim is None:
        return _error(found[key])
    said = {True: "met", False: "missed", None: "unknown"}[aim["met"]]
    return f"{_error(aim['value'])} (target {aim['target']:.2f}: {said})"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
