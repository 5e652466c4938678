"""The result of a comparison: what ``result.json`` holds.

The names of the fields are the keys of the file. Fields with a default were added after the first
version: files that lack them still open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from stallward.agent.errors import SchemaError
from stallward.agent.schema.marks import Flat
from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.results.interval import Interval
from stallward.evaluation.results.serialise import load

SCHEMA: Final = 1
RESULT_FILE: Final = "result.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The figures of one condition, each with its 95 % interval.

    Attributes:
        p50_ms, p95_ms, p99_ms, mean_ms: Latency from the scheduled arrival.
        impact_mean, impact_p95, impact_p99: How much longer than alone, as a share of it.
        impact_ample_mean, impact_ample_p95, impact_ample_p99: The same against ample memory.
        slo_attainment: Share of the windows that met the target.
        background_work: Mean over the groups of their rate, as a share of the rate with the node
            to itself.
        psi_some_share: Share of time in which a protected task stalled for memory.
        paused_share: Share of group time spent paused.
    """

    p50_ms: Interval
    p95_ms: Interval
    p99_ms: Interval
    mean_ms: Interval
    impact_mean: Interval
    impact_p95: Interval
    impact_p99: Interval
    impact_ample_mean: Interval
    impact_ample_p95: Interval
    impact_ample_p99: Interval
    slo_attainment: Interval
    background_work: Interval
    psi_some_share: Interval
    paused_share: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How much an arm varies over its rounds; ``None`` where that is not known."""

    impact_ample_p99_sd: float | None = None
    impact_ample_p99_worst: float | None = None
    slo_attainment_worst: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFacts:
    """What an arm was, and what happened in its blocks.

    Attributes:
        controller: The arm as it was asked for.
        budgets_lifted: Whether the guard's budgets were lifted for it.
        invalid_blocks: How many blocks were thrown away and run again.
        terminated_processes: How many background processes the arm ended.
        requests: How many requests were measured.
        stolen_share_worst: Share of processor time that the host took, in the worst block.
        fallback_share_worst: Share of ticks decided by the default controller, in the worst block.
    """

    controller: str
    budgets_lifted: bool = False
    invalid_blocks: int = 0
    terminated_processes: int = 0
    requests: int = 0
    stolen_share_worst: float = 0.0
    fallback_share_worst: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """What one arm came to: its figures over ``blocks`` blocks, and how they vary by round."""

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
    """Rates of the background in a reference condition; ``None`` where units are not counted."""

    units_per_s: float | None
    units_per_s_by_group: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A reference condition in absolute figures."""

    protected: ProtectedTotals
    background: BackgroundTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The figures of the conditions that arms are held against."""

    alone: Metrics
    ample: Metrics


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
    """How a comparison was run.

    Attributes:
        summary: The scenario in one sentence.
        rounds: Blocks of each condition.
        block_s: Measured length of a block.
        burn_in_s: Its length before that.
        seed: What the order, the load and the resampling were drawn from.
        controller_slo_ms: The target that controllers were told.
        groups: Names of the background groups.
        units: What each of ``groups`` counts as work, in the same order.
        sandbox_limit_bytes: Memory of the sandbox.
        policies: Label of an arm -> the file of its policy.
        files_sha256: Label of an arm -> digest of the file that it took its decisions by.
    """

    summary: str
    rounds: int
    block_s: float
    burn_in_s: float
    seed: int
    controller_slo_ms: float
    groups: tuple[str, ...]
    units: tuple[str, ...]
    sandbox_limit_bytes: int
    policies: Mapping[str, str]
    files_sha256: Mapping[str, str] = field(default_factory=dict)

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
        """Name of a background group -> what it counts as work."""
        return dict(zip(self.groups, self.units, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The figures of all conditions.

    Attributes:
        slo_ms: The target of each window.
        slo_quantile: The quantile that has to meet it; older results judge the p95.
        slo_source: Where the target comes from, in words.
        resampled: What intervals come from: blocks, or the windows of the only one.
        alone, ample: The reference conditions in absolute figures.
        references: The reference conditions in the figures of arms.
        arms: Label -> what the arm came to.
        contrasts: Every pair of arms.
    """

    slo_ms: float
    slo_quantile: float = 0.95
    slo_source: str
    resampled: Literal["blocks", "windows"]
    alone: Reference
    ample: Reference
    references: References
    arms: Mapping[str, ArmResult]
    contrasts: tuple[Contrast, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """A whole comparison.

    Attributes:
        schema: Version of the file.
        mode: Whether blocks ran on this machine or on its twin.
        scenario: Which scenario ran.
        node: The machine of the first block.
        other_nodes: Other machines that later blocks ran on.
        table: The figures.
        method: How they were measured.
    """

    schema: int = SCHEMA
    mode: Literal["live", "twin"]
    scenario: str
    node: NodeInfo
    other_nodes: tuple[NodeInfo, ...] = ()
    table: Flat[Table]
    method: Method


def load_result(directory: Path) -> ComparisonResult:
    """Read the result of the comparison in a directory.

    Raises:
        EvaluationError: If there is none, or it cannot be read.
    """
    path = directory / RESULT_FILE
    if not path.exists():
        raise EvaluationError(
            f"{directory} has no {RESULT_FILE}.", next_step="Run `stallward compare` into it."
        )
    return load(ComparisonResult, path)
