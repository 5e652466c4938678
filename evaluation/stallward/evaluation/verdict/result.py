"""The verdict on a policy: what ``verdict.json`` holds.

The names of the fields are the keys of the file. Fields with a default were added after the first
version: files that lack them still open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.agent.schema.marks import Flat
from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.results.comparison import ComparisonResult
from stallward.evaluation.results.interval import Interval
from stallward.evaluation.results.oracle import Hindsight
from stallward.evaluation.results.serialise import load

SCHEMA: Final = 2
VERDICT_FILE: Final = "verdict.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFigure:
    """One figure of an arm, and whether it meets its target.

    Attributes:
        interval: The value and its 95 % interval.
        worst: The value in the worst scenario, where there are several.
        beyond: Whether the arm did something where the other did nothing.
        left_out_scenarios: How many scenarios the figure says nothing about.
        target: What has to be reached, in words; empty without a target.
        met: Whether the value meets it; ``None`` where that cannot be said.
        surely: Whether the whole interval does.
    """

    interval: Flat[Interval]
    worst: float | None = None
    beyond: bool = False
    left_out_scenarios: int = 0
    target: str = ""
    met: bool | None = None
    surely: bool | None = None


JudgedFigures = Mapping[str, JudgedFigure]
"""Name of a figure -> the figure, for one arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatWasRun:
    """Where a scenario was compared, and by which files.

    Attributes:
        node: The machine of the first block.
        block_s: Measured length of a block.
        burn_in_s: Its length before that.
        seed: What the order, the load and the resampling were drawn from.
        files_sha256: Label of an arm -> digest of the file that it took its decisions by.
    """

    node: NodeInfo | None = None
    block_s: float | None = None
    burn_in_s: float | None = None
    seed: int | None = None
    files_sha256: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioVerdict:
    """The verdict on every arm in one scenario.

    Attributes:
        rounds: Blocks of every arm.
        slo_ms, slo_quantile: The target of each window, and the quantile that has to meet it.
        oracle: The best static arm in hindsight; ``None`` where there was none.
        roles: What an arm is to the verdict -> its label.
        nodes: How many machines the blocks ran on.
        run: Where they ran, and by which files.
        spoiled_blocks: Role -> blocks that were run again.
        ended_programs: Role -> programs that the arm terminated.
        stolen_share_worst: Role -> share of processor time that the host took in the worst block.
        arms: Role -> the figures.
    """

    rounds: int
    slo_ms: float
    slo_quantile: float = 0.95
    oracle: Hindsight | None
    roles: Mapping[str, str]
    nodes: int = 1
    run: WhatWasRun = field(default_factory=WhatWasRun)
    spoiled_blocks: Mapping[str, int] = field(default_factory=dict)
    ended_programs: Mapping[str, int] = field(default_factory=dict)
    stolen_share_worst: Mapping[str, float] = field(default_factory=dict)
    arms: Mapping[str, JudgedFigures]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """Which controller ships, and why."""

    controller: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The whole verdict.

    Attributes:
        schema: Version of the file.
        scenarios: Name -> the verdict there.
        arms: Role -> its figures over all scenarios.
        again: Role of an arm that was run twice -> it against itself.
        ships: Which controller ships.
        failed: Scenario that could not be run -> why.
    """

    schema: int = SCHEMA
    scenarios: Mapping[str, ScenarioVerdict]
    arms: Mapping[str, JudgedFigures]
    again: Mapping[str, JudgedFigures]
    ships: Shipped
    failed: Mapping[str, str] = field(default_factory=dict)


def what_was_run(result: ComparisonResult) -> WhatWasRun:
    """What a verdict keeps of how a scenario was compared."""
    method = result.method
    return WhatWasRun(
        node=result.node,
        block_s=method.block_s,
        burn_in_s=method.burn_in_s,
        seed=method.seed,
        files_sha256=method.files_sha256,
    )


def load_verdict(directory: Path) -> Verdict:
    """Read what a verdict has come to so far.

    Raises:
        EvaluationError: If there is none, or it cannot be read.
    """
    path = directory / VERDICT_FILE
    if not path.exists():
        raise EvaluationError(
            f"There is no verdict in {directory}.",
            next_step="Run `stallward verdict --out` there.",
        )
    return load(Verdict, path)
