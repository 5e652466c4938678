"""The verdict on a policy: what ``verdict.json`` holds.

The names of the fields are the keys of the file. Fields with a default were added after the first
version: files that lack them still open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.agent.schema.marks import Flat, Omitted
from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.results.comparison import ComparisonResult
from stallward.evaluation.results.interval import Interval
from stallward.evaluation.results.serialise import load
from stallward.research.hindsight import Hindsight

SCHEMA: Final = 2
VERDICT_FILE: Final = "verdict.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFigure:
    """One figure of an arm, and whether it meets its target."""

    interval: Flat[Interval]
    """The value and its 95 % interval."""
    worst: float | None = None
    """The value in the worst scenario; ``None`` for a single scenario."""
    beyond: bool = False
    """Whether the arm did something while the other one did nothing."""
    left_out_scenarios: int = 0
    """How many scenarios the figure could not be computed for."""
    target: str = ""
    """The target in words; empty without one."""
    met: bool | None = None
    """Whether the value meets the target; ``None`` if that cannot be said."""
    surely: bool | None = None
    """Whether the whole interval meets it."""


JudgedFigures = Mapping[str, JudgedFigure]
"""Name of a figure -> the figure, for one arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProvenance:
    """Where the blocks of a scenario ran, and with which files."""

    node: NodeInfo | None = None
    """The machine of the first block."""
    block_s: float | None = None
    """Measured length of a block."""
    burn_in_s: float | None = None
    """Length of the burn-in before each block."""
    seed: int | None = None
    """The seed of the order, the load and the resampling."""
    files_sha256: Mapping[str, str] | None = None
    """Label of an arm -> digest of the file that it decides by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioVerdict:
    """The verdict on every arm in one scenario."""

    rounds: int
    """Number of blocks of every arm."""
    slo_ms: float
    """The target of each window."""
    slo_quantile: float = 0.95
    """The quantile of each window that has to meet the target."""
    slo_source: str = ""
    """The origin of the target, in words; not known of older verdicts."""
    oracle: Hindsight | None
    """The best static arm in hindsight; ``None`` if there was none."""
    roles: Mapping[str, str]
    """Role of an arm in the verdict -> its label."""
    nodes: int = 1
    """How many machines the blocks ran on."""
    run: RunProvenance = field(default_factory=RunProvenance)
    """Where the blocks ran, and with which files."""
    spoiled_blocks: Mapping[str, int] = field(default_factory=dict)
    """Role -> number of blocks that were run again."""
    ended_programs: Mapping[str, int] = field(default_factory=dict)
    """Role -> number of programs that the arm terminated."""
    stolen_share_worst: Mapping[str, float] = field(default_factory=dict)
    """Role -> share of steal time in the worst block."""
    arms: Mapping[str, JudgedFigures]
    """Role -> its figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """Which controller ships, and why."""

    controller: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on every scenario, the figures over all of them, and what ships."""

    schema: int = SCHEMA
    """Version of the file."""
    scenarios: Mapping[str, ScenarioVerdict]
    """Name of a scenario -> its verdict."""
    arms: Mapping[str, JudgedFigures]
    """Role -> its figures over all scenarios."""
    again: Mapping[str, JudgedFigures]
    """Role of an arm that was run twice -> its comparison with itself."""
    ships: Shipped
    """Which controller ships."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Name of a scenario that could not be run -> why."""
    rounds_needed: Omitted[int] = None
    """The rounds that show 10 % more work with a chance of 80 %, by how much the policy's two runs
    differ; ``None`` if they do not say."""


def provenance_of(result: ComparisonResult) -> RunProvenance:
    """The provenance of a comparison, as a verdict keeps it."""
    method = result.method
    return RunProvenance(
        node=result.node,
        block_s=method.block_s,
        burn_in_s=method.burn_in_s,
        seed=method.seed,
        files_sha256=method.files_sha256,
    )


def load_verdict(directory: Path) -> Verdict:
    """Read the verdict in a directory, as far as it has been run.

    Raises:
        EvaluationError: If there is no verdict, or it cannot be read.
    """
    path = directory / VERDICT_FILE
    if not path.exists():
        raise EvaluationError(
            f"There is no verdict in {directory}.",
            next_step="Run `stallward verdict --out` there.",
        )
    return load(Verdict, path)
