"""The results of measurements of fidelity: the contents of ``fidelity.json`` and ``ranking.json``.

The names of the fields are the keys of the files. Unknown values are ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from stallward.agent.schema.marks import Flat
from stallward.evaluation.results.interval import Interval

SCHEMA: Final = 5
RANKING_SCHEMA: Final = 1
Measure = Literal["p99", "background work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Quantiles of latency in milliseconds."""

    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Absolute log ratios of twin to live: 0.1 is about 10 %."""

    p50: float | None
    p95: float | None
    p99: float | None
    work: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Distances:
    """Name of a signal -> its distance from live, in units of its variation live."""

    twin: Mapping[str, float]
    """Distance of the twin."""
    replay: Mapping[str, float]
    """Distance of naive replay; empty for the arm that is replayed."""
    floor: Mapping[str, float]
    """Distance of live from live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRow:
    """One arm, twin beside live."""

    scenario: str
    """The scenario's name."""
    arm: str
    """The arm's label."""
    live_ms: Latencies
    """Latencies of all requests live."""
    twin_ms: Latencies
    """Latencies of all requests on the twin."""
    live_work: float | None
    """Background work live; ``None`` if the own rate of the background was not measured."""
    twin_work: float | None
    """Background work on the twin."""
    errors: Errors
    """The errors of the twin."""
    floor: Errors
    """The errors of live against live."""
    covered: Mapping[str, bool]
    """Figure -> whether its live value lies within the range of the twin's blocks."""
    distances: Distances
    """The distances of all signals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFidelity:
    """Ranks and effects between the arms of one scenario."""

    spearman: float | None
    """Rank correlation of p95 over the arms."""
    effects_right: int
    """How many certain effects have the right sign on the twin."""
    effects_counted: int
    """How many certain effects there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelitySummary:
    """The summary over all arms."""

    p95_error_median: float | None
    """The median over arms of the error of p95."""
    p95_error_worst: float | None
    """The largest error of p95."""
    p99_error_median: float | None
    """The median over arms of the error of p99."""
    p99_error_worst: float | None
    """The largest error of p99."""
    background_error_median: float | None
    """The median over arms of the error of background work."""
    background_error_worst: float | None
    """The largest error of background work."""
    p95_floor_median: float | None
    """The median over arms of the error of p95, live against live."""
    p99_floor_median: float | None
    """The median over arms of the error of p99, live against live."""
    effect_signs_right: float | None
    """Share of the certain effects whose sign on the twin is right."""
    effects_counted: int
    """How many certain effects there are."""
    spearman: float | None
    """Rank correlation of p95: the median over scenarios."""
    spearman_worst: float | None
    """The lowest rank correlation of p95 of any scenario."""
    distance_vs_replay: float | None
    """The twin's mean distance over that of naive replay: the median over arms."""
    distance_vs_noise_floor: float | None
    """The twin's mean distance over that of live from live: the median over arms."""
    covered: float | None
    """Share of live figures that lie within the range of the twin's blocks."""
    scenarios: Mapping[str, ScenarioFidelity]
    """Name of a scenario -> its ranks and effects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTarget:
    """A figure with its target; ``met`` is ``None`` if the figure is unknown."""

    value: float | None
    target: float
    met: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityTable:
    """A group of arms with their summary."""

    arms: tuple[ArmRow, ...]
    """The arms."""
    not_run: tuple[str, ...]
    """Arms with recordings of what cannot be run any more."""
    summary: Flat[FidelitySummary]
    """The summary over these arms."""
    targets: Mapping[str, JudgedTarget]
    """Key of a figure of the summary -> the figure with its target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityResult:
    """The whole result."""

    schema: int = SCHEMA
    """Version of the file."""
    twins: Literal["fitted without the arm", "as they are"]
    """Whether twins were fitted without the arm, or taken as they are."""
    table: Flat[FidelityTable]
    """Arms of the scenarios that twins are fitted to, or of the given twins."""
    left_out_scenarios: FidelityTable | None
    """Arms of scenarios that no fit has seen; ``None`` if there are none."""


# ---------- The ranking of arms, live and on the twin


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedArm:
    """An arm, live and on the twin."""

    arm: str
    """The arm's label."""
    live_p99_ms: float | None
    twin_p99_ms: float | None
    live_work: float | None
    twin_work: float | None
    p99_error: float | None
    """``|ln(twin / live)|`` of the p99."""
    work_error: float | None
    """The same of background work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongEffect:
    """An effect that is certain live and has another sign on the twin."""

    measure: Measure
    """What the arms were compared by."""
    arm: str
    against: str
    live: Interval
    """The arm over the other, live."""
    twin: float | None
    """The same on the twin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioRanking:
    """The arms of one scenario, which were compared live and on its twin."""

    fitted: bool | None
    """Whether the twin was fitted to recordings of the scenario; ``None`` if that is unknown."""
    arms: tuple[RankedArm, ...]
    """The arms that both comparisons have."""
    p99_spearman: float | None
    """Rank correlation of p99 over the arms."""
    work_spearman: float | None
    """Rank correlation of background work."""
    effects_right: int
    """How many certain effects have the right sign on the twin."""
    effects_counted: int
    """How many differences between two arms are certain live."""
    wrong: tuple[WrongEffect, ...]
    """The certain effects with another sign on the twin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingSummary:
    """The summary over all scenarios."""

    rank_signs_right: float | None
    """Share of the certain effects, on p99 and on background work, whose sign is right."""
    rank_signs_counted: int
    """How many certain effects there are."""
    p99_spearman_median: float | None
    p99_spearman_worst: float | None
    work_spearman_median: float | None
    work_spearman_worst: float | None
    unseen_p99_error_median: float | None
    """The median error of p99 over all arms of scenarios that no fit has seen."""
    unseen_work_error_median: float | None
    """The same of background work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingResult:
    """The whole result."""

    schema: int = RANKING_SCHEMA
    """Version of the file."""
    scenarios: Mapping[str, ScenarioRanking]
    """Name of a scenario -> its ranking."""
    alone: tuple[str, ...]
    """Comparisons that were given for one side only, or arms that one side lacks."""
    summary: Flat[RankingSummary]
    """The summary over all scenarios."""
    targets: Mapping[str, JudgedTarget]
    """Key of a figure of the summary -> the figure with its target."""
