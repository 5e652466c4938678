"""Where an experiment is, and when it ends. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from stallward.actuator.experiments.block_tally import BlockResult, Loss
from stallward.actuator.experiments.plan import Arm, ExperimentPlan, PrimaryMeasure
from stallward.actuator.sequential import certainly_lower, mean_bounds

MOST_LOST_IN_A_ROW: Final = 6
"""After so many the experiment ends: something is wrong that does not pass by itself."""


class Progress(StrEnum):
    """Whether an experiment runs, and why it ended."""

    RUNNING = "running"
    COMPLETE = "complete"
    """All pairs were run."""
    CERTAIN = "certain"
    """The arms certainly differ in the primary measure."""
    GUARDRAIL = "guardrail"
    """The treatment certainly keeps the target less often, or answers in fewer seconds."""
    LOSSES = "losses"
    """Too many blocks in a row were lost."""
    STOPPED = "stopped"
    """A client stopped it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What was in force before the experiment; it is put back at the end."""

    policy: str = ""
    """The path of the loaded policy; empty for none."""
    mode: str = "off"
    """What it might do: "off", "shadow", "advice" or "active"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentState:
    """An experiment, as it is kept on the disk."""

    plan: ExperimentPlan
    before: Before
    began_s: float
    """When it was started, in Unix time."""
    blocks: tuple[BlockResult, ...] = ()
    """The blocks that ended, in their order."""
    progress: Progress = Progress.RUNNING
    ended_s: float | None = None
    """When it ended, in Unix time."""
    left_to_undo: bool = False
    """Whether it has ended, and what was in force before is not in force again yet."""

    @property
    def running(self) -> bool:
        """Whether there are blocks to come."""
        return self.progress is Progress.RUNNING

    def with_block(self, block: BlockResult) -> ExperimentState:
        """The state after one more block."""
        state = replace(self, blocks=(*self.blocks, block))
        return replace(state, progress=state._judged()) if self.running else state

    def with_last(self, block: BlockResult) -> ExperimentState:
        """The state once more is known of the block that ended last."""
        return replace(self, blocks=(*self.blocks[:-1], block))

    def ended(self, progress: Progress, time_s: float) -> ExperimentState:
        """The state after the end."""
        return replace(self, progress=progress, ended_s=time_s, left_to_undo=True)

    def undone(self) -> ExperimentState:
        """The state once what was in force before is in force again."""
        return replace(self, left_to_undo=False)

    def breaks_guardrail(self, arm: Arm, batches: tuple[float, ...] = ()) -> bool:
        """Whether the treatment certainly keeps the target less often than it may.

        Args:
            arm: The arm of the block that runs.
            batches: Its batches so far.
        """
        seen = {one: self._batches(one) for one in Arm}
        seen[arm] = (*seen[arm], *batches)
        return certainly_lower(seen[Arm.TREATMENT], seen[Arm.BASELINE], margin=self.plan.margin)

    def log_ratios(self, measure: PrimaryMeasure) -> tuple[float, ...]:
        """The logarithms of treatment over baseline of the pairs in which both blocks count."""
        return log_ratios(self.blocks, measure)

    def _batches(self, arm: Arm) -> tuple[float, ...]:
        return tuple(x for block in self.blocks if block.arm is arm for x in block.batches)

    def _falls_silent(self) -> bool:
        """Whether under the treatment there certainly are answers in fewer seconds.

        Where nobody knows whether requests waited, a block says little: the application may have
        been idle. But that is so in the blocks of both arms alike, because their order is drawn.
        """
        shares: dict[Arm, list[float]] = {arm: [] for arm in Arm}
        for block in self.blocks:
            if block.loss in (Loss.NONE, Loss.NO_REQUESTS):
                shares[block.arm].append(min(block.seconds / self.plan.block_s, 1.0))
        margin = self.plan.margin
        return certainly_lower(shares[Arm.TREATMENT], shares[Arm.BASELINE], margin=margin)

    def _judged(self) -> Progress:
        if self.breaks_guardrail(Arm.TREATMENT) or self._falls_silent():
            return Progress.GUARDRAIL
        last = self.blocks[-MOST_LOST_IN_A_ROW:]
        if len(last) == MOST_LOST_IN_A_ROW and all(one.loss is not Loss.NONE for one in last):
            return Progress.LOSSES
        judged = self.plan.stop_when_certain and len(self.blocks) % 2 == 0
        if judged and all_have_ratios(self.blocks, self.plan.primary):
            low, high = mean_bounds(self.log_ratios(self.plan.primary))
            if low > 0.0 or high < 0.0:
                return Progress.CERTAIN
        if len(self.blocks) >= self.plan.blocks:
            return Progress.COMPLETE
        return Progress.RUNNING


def measured(block: BlockResult, measure: PrimaryMeasure) -> float | None:
    """The value of a measure in a block; ``None`` if it is not known."""
    match measure:
        case PrimaryMeasure.P95:
            return block.p95_ms
        case PrimaryMeasure.WORST:
            return block.worst_ms
        case PrimaryMeasure.WORK:
            return block.background_units_per_s if block.work_unit else block.background_cores
        case PrimaryMeasure.BLOCK_P95:
            return block.latencies.percentile_ms(95.0) if block.latencies else None
        case PrimaryMeasure.BLOCK_P99:
            return block.latencies.percentile_ms(99.0) if block.latencies else None


def log_ratios(blocks: Iterable[BlockResult], measure: PrimaryMeasure) -> tuple[float, ...]:
    """The logarithms of treatment over baseline of the pairs in which both blocks count."""
    return tuple(
        math.log(treatment / baseline)
        for baseline, treatment in paired(blocks, measure)
        if baseline > 0.0 and treatment > 0.0
    )


def all_have_ratios(blocks: Iterable[BlockResult], measure: PrimaryMeasure) -> bool:
    """Whether each pair in which both blocks count has a ratio with a logarithm.

    Where the background of an arm did no work at all it has none. The other pairs then leave out
    the largest differences, so nothing is certain.
    """
    return all(min(pair) > 0.0 for pair in paired(blocks, measure))


def paired(
    blocks: Iterable[BlockResult], measure: PrimaryMeasure
) -> tuple[tuple[float, float], ...]:
    """The values of baseline and treatment in the pairs in which both blocks count.

    A pair whose blocks counted work in different units is left out: a daemon was restarted with
    another configuration in between.
    """
    pairs: dict[int, dict[Arm, tuple[str, float]]] = {}
    for block in blocks:
        value = measured(block, measure)
        if block.loss is Loss.NONE and value is not None:
            pairs.setdefault(block.pair, {})[block.arm] = (block.work_unit, value)
    whole = [pair for pair in pairs.values() if len(pair) == len(Arm)]
    return tuple(
        (pair[Arm.BASELINE][1], pair[Arm.TREATMENT][1])
        for pair in whole
        if measure is not PrimaryMeasure.WORK or pair[Arm.BASELINE][0] == pair[Arm.TREATMENT][0]
    )
