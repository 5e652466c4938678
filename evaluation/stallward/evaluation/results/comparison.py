"""The result of a comparison: the content of ``result.json``.

The names of the fields are the keys of the file. Fields with a default were added after the first
version: files that lack them still open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from stallward.agent.errors import SchemaError
from stallward.agent.schema.marks import Flat, Omitted
from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.results.interval import Interval
from stallward.evaluation.results.serialise import load

SCHEMA: Final = 1
RESULT_FILE: Final = "result.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The figures of one condition, each with its 95 % interval."""

    p50_ms: Interval
    """Median latency from the scheduled arrival."""
    p95_ms: Interval
    """The p95 of the latency."""
    p99_ms: Interval
    """The p99 of the latency."""
    mean_ms: Interval
    """Mean latency."""
    impact_mean: Interval
    """Growth of the mean latency against alone: (arm - alone) / alone."""
    impact_p95: Interval
    """Growth of the p95 against alone."""
    impact_p99: Interval
    """Growth of the p99 against alone."""
    impact_ample_mean: Interval
    """Growth of the mean latency against ample memory."""
    impact_ample_p95: Interval
    """Growth of the p95 against ample memory."""
    impact_ample_p99: Interval
    """Growth of the p99 against ample memory."""
    slo_attainment: Interval
    """Share of windows that met the target; of seconds in which each of several applications met
    its own."""
    background_work: Interval
    """Mean over groups of their rate, relative to their rate with the node to themselves."""
    psi_some_share: Interval
    """Share of time in which a protected task stalled for memory."""
    paused_share: Interval
    """Share of group time spent paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The variation of an arm over its rounds; ``None`` for what is unknown."""

    impact_ample_p99_sd: float | None = None
    impact_ample_p99_worst: float | None = None
    slo_attainment_worst: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFacts:
    """Facts about an arm and its blocks, beside the figures."""

    controller: str
    """The spec of the arm."""
    budgets_lifted: bool = False
    """Whether the guard's budgets were lifted for it."""
    invalid_blocks: int = 0
    """How many blocks were discarded and run again."""
    terminated_processes: int = 0
    """How many background processes the arm terminated."""
    limit_kills: int = 0
    """How many background processes the kernel killed under a limit that the arm had set."""
    requests: int = 0
    """How many requests were measured."""
    stolen_share_worst: float = 0.0
    """Share of steal time in the worst block."""
    fallback_share_worst: float = 0.0
    """Share of ticks at which the default controller decided, in the worst block."""

    @property
    def ended_processes(self) -> int:
        """How many background processes the arm ended: terminated, or killed under its limits."""
        return self.terminated_processes + self.limit_kills


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """The result of one arm: its figures over ``blocks`` blocks, and their variation by round."""

    blocks: int
    metrics: Flat[Metrics]
    spread: Spread = field(default_factory=Spread)
    facts: Flat[ArmFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedTotals:
    """Latency of the protected application in a reference condition."""

    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    mean_ms: float | None
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundTotals:
    """Rates of the background in a reference condition; ``None`` if units are not counted."""

    units_per_s: float | None
    units_per_s_by_group: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A reference condition in absolute figures."""

    protected: ProtectedTotals
    background: BackgroundTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The figures of the conditions that arms are compared with."""

    alone: Metrics
    ample: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationMetrics:
    """The figures of one of several applications under one condition."""

    application: str
    """Its name."""
    slo_ms: float
    """Its target."""
    slo_quantile: float
    """The quantile of each window that has to meet it."""
    slo_attainment: Interval
    """Share of windows that met it."""
    p95_ms: Interval
    p99_ms: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """One arm against another: its figures over the other's, resampled together."""

    arm: str
    against: str
    mean_ratio: Interval
    p50_ratio: Interval
    p95_ratio: Interval
    p99_ratio: Interval
    background_work_ratio: Interval
    slo_attainment_difference: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How a comparison was run."""

    summary: str
    """The scenario in one sentence."""
    rounds: int
    """Number of blocks of each condition."""
    block_s: float
    """Measured length of a block."""
    burn_in_s: float
    """Length of the burn-in before each block."""
    seed: int
    """The seed of the order, the load and the resampling."""
    controller_slo_ms: float
    """The target that controllers were given: that of the table, except in older results."""
    groups: tuple[str, ...]
    """Names of the background groups."""
    units: tuple[str, ...]
    """The unit of work of each of ``groups``, in the same order."""
    sandbox_limit_bytes: int
    """The memory limit of the sandbox."""
    policies: Mapping[str, str]
    """Label of an arm -> the file of its policy."""
    files_sha256: Mapping[str, str] = field(default_factory=dict)
    """Label of an arm -> digest of the file that it decides by."""
    twin_fitted: Omitted[bool] = None
    """Whether the twin was fitted to recordings of the scenario; ``None`` live, and in older
    results."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Label of an arm that the node cannot support -> why; it has no blocks."""

    def __post_init__(self) -> None:
        """Refuse groups and units that do not belong together.

        Raises:
            SchemaError: If there is not one unit for each group.
        """
        if len(self.groups) != len(self.units):
            raise SchemaError(
                f"units are {len(self.units)}, but there are {len(self.groups)} groups."
            )

    @property
    def unit_of_group(self) -> Mapping[str, str]:
        """Name of a background group -> the unit of its work."""
        return dict(zip(self.groups, self.units, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The figures of all conditions."""

    slo_ms: float
    """The target of each window."""
    slo_quantile: float = 0.95
    """The quantile of each window that has to meet the target; older results judge the p95."""
    slo_source: str
    """The origin of the target, in words."""
    resampled: Literal["blocks", "windows"]
    """What was resampled for the intervals: blocks, or the windows of a single block."""
    alone: Reference
    """The condition ``alone`` in absolute figures."""
    ample: Reference
    """The condition ``ample`` in absolute figures."""
    references: References
    """The reference conditions in the same figures as the arms."""
    arms: Mapping[str, ArmResult]
    """Label of an arm -> its result."""
    contrasts: tuple[Contrast, ...] = ()
    """The contrasts of all pairs of arms."""
    applications: Omitted[Mapping[str, tuple[ApplicationMetrics, ...]]] = None
    """``alone``, ``ample`` or the label of an arm -> the figures of each application; ``None``
    where there is one. All latencies beside these are those of the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """A whole comparison."""

    schema: int = SCHEMA
    """Version of the file."""
    mode: Literal["live", "twin"]
    """Whether blocks ran on this machine or on its twin."""
    scenario: str
    """Name of the scenario."""
    node: NodeInfo
    """The machine of the first block."""
    other_nodes: tuple[NodeInfo, ...] = ()
    """Other machines that later blocks ran on."""
    table: Flat[Table]
    """The figures."""
    method: Method
    """How they were measured."""


def load_result(directory: Path) -> ComparisonResult:
    """Read the result of the comparison in a directory.

    Raises:
        EvaluationError: If there is no result, or it cannot be read.
    """
    path = directory / RESULT_FILE
    if not path.exists():
        raise EvaluationError(
            f"{directory} has no {RESULT_FILE}.", next_step="Run `stallward compare` into it."
        )
    return load(ComparisonResult, path)
