"""What the fidelity of twins comes to: what ``fidelity.json`` holds.

The names of the fields are the keys of the file. What is not known is ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from stallward.agent.schema.marks import Flat

SCHEMA: Final = 5


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
    """Name of a signal -> its distance from live, in units of how much it varies live.

    Attributes:
        twin: The twin's.
        replay: Naive replay's; empty for the arm that is replayed.
        floor: Live from live.
    """

    twin: Mapping[str, float]
    replay: Mapping[str, float]
    floor: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRow:
    """One arm, twin beside live.

    Attributes:
        scenario, arm: Which arm.
        live_ms, twin_ms: Latencies of all requests.
        live_work, twin_work: Background work as a share of its own rate.
        errors: How far the twin is off.
        floor: The same of live against live.
        covered: Figure -> whether what was seen live lies among what the twin's blocks say.
        distances: Of each signal.
    """

    scenario: str
    arm: str
    live_ms: Latencies
    twin_ms: Latencies
    live_work: float | None
    twin_work: float | None
    errors: Errors
    floor: Errors
    covered: Mapping[str, bool]
    distances: Distances


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFidelity:
    """Ranks and effects between the arms of one scenario.

    Attributes:
        spearman: Rank correlation of p95 over the arms.
        effects_right: Certain effects whose sign the twin has right.
        effects_counted: Certain effects.
    """

    spearman: float | None
    effects_right: int
    effects_counted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelitySummary:
    """What all arms together come to.

    Attributes:
        p95_error_median, p95_error_worst: Of p95, over all arms.
        p99_error_median, p99_error_worst: Of p99.
        background_error_median, background_error_worst: Of background work.
        p95_floor_median, p99_floor_median: The same errors of live against live.
        effect_signs_right: Share of certain effects whose sign the twin has right.
        effects_counted: Certain effects.
        spearman, spearman_worst: Rank correlation of p95, the median of the scenarios' and the
            lowest.
        distance_vs_replay: The twin's mean distance by that of naive replay, median over arms.
        distance_vs_noise_floor: The same by the distance of live from live.
        covered: Share of live figures that lie among those of the twin's blocks.
        scenarios: Name -> ranks and effects.
    """

    p95_error_median: float | None
    p95_error_worst: float | None
    p99_error_median: float | None
    p99_error_worst: float | None
    background_error_median: float | None
    background_error_worst: float | None
    p95_floor_median: float | None
    p99_floor_median: float | None
    effect_signs_right: float | None
    effects_counted: int
    spearman: float | None
    spearman_worst: float | None
    distance_vs_replay: float | None
    distance_vs_noise_floor: float | None
    covered: float | None
    scenarios: Mapping[str, ScenarioFidelity]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTarget:
    """A figure beside what it has to reach; ``met`` is ``None`` where the figure is unknown."""

    value: float | None
    target: float
    met: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityTable:
    """Some arms, and what they come to together.

    Attributes:
        arms: Each of them.
        not_run: Recorded arms that cannot be run any more.
        summary: All of them together.
        targets: Key of the summary -> the figure beside its target.
    """

    arms: tuple[ArmRow, ...]
    not_run: tuple[str, ...]
    summary: Flat[FidelitySummary]
    targets: Mapping[str, JudgedTarget]


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityResult:
    """The whole measure.

    Attributes:
        schema: Version of the file.
        twins: Which twins were measured.
        table: Arms of the scenarios that twins are fitted to, or of the given twins.
        left_out_scenarios: Arms of scenarios that no fit has seen; ``None`` where there are none.
    """

    schema: int = SCHEMA
    twins: Literal["fitted without the arm", "as they are"]
    table: Flat[FidelityTable]
    left_out_scenarios: FidelityTable | None
