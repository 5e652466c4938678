"""The table that ``stallward fidelity`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from stallward.evaluation.report.experiment_page import PageTable
from stallward.evaluation.report.text import number
from stallward.research.fidelity.result import (
    ArmRow,
    Distances,
    FidelityTable,
    JudgedTarget,
)

_DISTANCES: Final = ("distance", "replay's", "live's own")
"""Headers of the columns for the twin, for naive replay, and for live against live."""
_NOMINAL: Final = 11.0 / 13.0
"""How often a thirteenth draw lies between the smallest and the largest of twelve."""
_HEADERS: Final = (
    "scenario",
    "arm",
    "p95 live ms",
    "p95 twin ms",
    "work live",
    "work twin",
    "err p50",
    "err p95",
    "err p99",
    "err work",
    "floor p95",
    "floor p99",
    "floor work",
    *_DISTANCES,
    "covered",
)


def fidelity_rows(table: FidelityTable) -> tuple[PageTable, list[str]]:
    """The table and its closing lines."""
    return PageTable(headers=_HEADERS, rows=[*map(_row, table.arms)]), fidelity_notes(table)


def _row(arm: ArmRow) -> tuple[str, ...]:
    errors, floor, distances = arm.errors, arm.floor, arm.distances
    return (
        arm.scenario,
        arm.arm,
        number(arm.live_ms.p95, "ms"),
        number(arm.twin_ms.p95, "ms"),
        number(arm.live_work, "share"),
        number(arm.twin_work, "share"),
        *(_error(value) for value in (errors.p50, errors.p95, errors.p99, errors.work)),
        *(_error(value) for value in (floor.p95, floor.p99, floor.work)),
        *(_error(_mean(of)) for of in (distances.twin, distances.replay, distances.floor)),
        f"{sum(arm.covered.values())}/{len(arm.covered)}",
    )


def _mean(distances: Mapping[str, float]) -> float | None:
    """The mean over signals."""
    return sum(distances.values()) / len(distances) if distances else None


def fidelity_notes(table: FidelityTable) -> list[str]:
    """The summary over all arms in words, each figure with its target."""
    summary = table.summary

    def aimed(key: str, value: float | None) -> str:
        return judged(table.targets.get(key), value)

    return [
        f"p95: median error {aimed('p95_error_median', summary.p95_error_median)}, "
        f"worst {aimed('p95_error_worst', summary.p95_error_worst)}",
        f"p99: median error {aimed('p99_error_median', summary.p99_error_median)}, "
        f"worst {aimed('p99_error_worst', summary.p99_error_worst)}",
        "background work: median error "
        f"{aimed('background_error_median', summary.background_error_median)}, "
        f"worst {aimed('background_error_worst', summary.background_error_worst)}",
        f"effects: of {summary.effects_counted} certain ones the right sign have "
        f"{aimed('effect_signs_right', summary.effect_signs_right)}",
        f"rank correlation of p95: median {aimed('spearman', summary.spearman)}, worst "
        f"{_error(summary.spearman_worst)}",
        f"distance: {aimed('distance_vs_replay', summary.distance_vs_replay)} of naive replay's, "
        f"{_error(summary.distance_vs_noise_floor)} times live against live",
        f"coverage: {number(summary.covered, 'share')} of live figures lie in the range of the "
        f"twin's blocks ({number(_NOMINAL, 'share')} would if both had one distribution)",
        *(_replaced(table.not_run) if table.not_run else ()),
    ]


def judged(aim: JudgedTarget | None, value: float | None) -> str:
    """A figure in words; if it has a target, also the target and whether it is met."""
    if aim is None:
        return _error(value)
    words = {True: "met", False: "missed", None: "unknown"}[aim.met]
    return f"{_error(aim.value)} (target {aim.target:.2f}: {words})"


def _replaced(not_run: Sequence[str]) -> list[str]:
    return [f"not run: recordings of a policy that was replaced since ({', '.join(not_run)})"]


def signal_rows(table: FidelityTable) -> PageTable:
    """The table with the distance of every signal, as means over arms."""
    means = mean_distances(table.arms)
    rows = [
        (name, _error(twin), _error(means.replay.get(name)), _error(means.floor.get(name)))
        for name, twin in means.twin.items()
    ]
    return PageTable(headers=("signal", *_DISTANCES), rows=rows)


def mean_distances(arms: Sequence[ArmRow]) -> Distances:
    """The mean over arms of each signal's distance."""
    return Distances(
        twin=_means([arm.distances.twin for arm in arms]),
        replay=_means([arm.distances.replay for arm in arms]),
        floor=_means([arm.distances.floor for arm in arms]),
    )


def _means(distances: Sequence[Mapping[str, float]]) -> dict[str, float]:
    by_signal: dict[str, list[float]] = {}
    for one in distances:
        for name, value in one.items():
            by_signal.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in by_signal.items()}


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
