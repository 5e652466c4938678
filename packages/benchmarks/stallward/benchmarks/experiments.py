"""``stallward bench experiments``: how often experiments on a node are wrong, and what they see.

Hundreds of experiments run on twin nodes that differ as in training, each with the blocks, the
tally, the guardrail and the bounds of a real one. Both arms are the same controller (A/A), so
every difference that an experiment finds is a false alarm. For the power, a known effect is laid
on the treatment's latencies afterwards.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.stats import binomtest, ttest_1samp

from stallward.actuator.experiments.block_tally import BlockResult, BlockTally, TickFacts
from stallward.actuator.experiments.plan import Candidate, ExperimentPlan, PrimaryMeasure
from stallward.actuator.experiments.state import Before, ExperimentState, Progress
from stallward.agent.observation.raw import NODE
from stallward.env.simulation.nuisance import Nuisance
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.evaluation.errors import MeasureError
from stallward.evaluation.experiments.analysis import paired_ratio
from stallward.evaluation.measures.bootstrap import Array
from stallward.evaluation.measures.intervals import POWER, power_of
from stallward.training.progress import Report, silent
from stallward.training.selection.rollout import Arm as TwinArm

STEP_S: Final = 1.0
ALPHA: Final = 0.05
_SILENCE_S: Final = 5.0
_LARGEST_SHIFT: Final = math.log(2.0)
_MOST_SPREADS: Final = 3.0
"""With 4 pairs or more, less is enough."""
_RATIOS: Final = tuple(round(0.05 * k, 2) for k in range(4, 61))
"""The multiples of the planned effect that are tried."""
_P95: Final = NODE["latency_p95_ms"]

MEANINGS: Final = {
    "experiments": "experiments of one controller with itself, each on a twin node of its own",
    "pairs": "pairs of blocks in each",
    "fixed_alarm_share": f"share that found a difference after all pairs ({ALPHA:g} is promised)",
    "fixed_excess_p": "chance of so many if the promise is kept; a small one says that it is not",
    "certain_alarm_share": f"share that was ever certain, looking after each pair ({ALPHA:g} at "
    "most)",
    "certain_excess_p": "chance of so many if the promise is kept",
    "guardrail_alarm_share": "share that the guardrail stopped (0.01 at most)",
    "planned_effect_share": "effect on p95 that half of the pairs show, as `ab plan` says by the "
    "other half (median)",
    "planned_found_share": f"share of the experiments that did show it ({POWER:g} is planned)",
    "needed_ratio": f"multiple of the planned effect that a share of {POWER:g} shows",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSettings:
    """The experiments that are simulated."""

    experiments: int = 200
    pairs: int = 24
    block_s: float = 40.0
    burn_in_s: float = 10.0
    seed: int = 1

    def plan(self, number: int) -> ExperimentPlan:
        """The plan of one experiment; its order of blocks comes from a seed of its own."""
        return ExperimentPlan(
            baseline=Candidate(),
            treatment=Candidate(),
            pairs=self.pairs,
            block_s=self.block_s,
            burn_in_s=self.burn_in_s,
            seed=1000 * self.seed + number,
            primary=PrimaryMeasure.P95,
            stop_when_certain=True,
        )


def simulate(
    twin: FittedTwin, settings: ExperimentSettings, report: Report = silent
) -> list[ExperimentState]:
    """Run experiments of ``partition`` with itself, to their last block.

    Args:
        twin: The nodes are drawn from it.
        settings: The experiments.
        report: Told of the progress.

    Returns:
        Their states; one that stopped early keeps its verdict, and has all blocks.
    """
    arm = TwinArm.of_partition()
    nodes = SimulationSettings(nuisance=replace(Nuisance(), target_ratio=(1.0, 1.0)))
    simulation = Simulation([twin], settings.experiments, arm.on(nodes), seed=settings.seed)
    simulation.reset(np.ones(settings.experiments, dtype=bool))
    act = arm.make(settings.experiments)
    states = [
        ExperimentState(plan=settings.plan(number), before=Before(), began_s=0.0)
        for number in range(settings.experiments)
    ]
    now_s = 0.0

    def seconds(length_s: float, look: Callable[[list[float | None]], None] | None) -> None:
        nonlocal now_s
        for _ in range(round(length_s / STEP_S)):
            simulation.step(act(simulation.observation))
            now_s += STEP_S
            if look is not None:
                look([_known(frame.node[_P95]) for frame in simulation.frames()])

    for block in range(2 * settings.pairs):
        report(f"block {block + 1}/{2 * settings.pairs}", block / (2 * settings.pairs))
        seconds(settings.burn_in_s, None)
        tallies = [BlockTally(slo_ms=twin.scenario.slo_ms, silence_s=_SILENCE_S) for _ in states]

        def take(p95s_ms: list[float | None]) -> None:
            for number, p95_ms in enumerate(p95s_ms):
                tally = tallies[number]  # noqa: B023 - it is called in this round only
                before = len(tally.batches)
                tally.take(TickFacts(time_s=now_s, p95_ms=p95_ms, background_cpu_us=None))
                if len(tally.batches) > before:
                    states[number] = _guarded(states[number], block, tally)  # noqa: B023

        seconds(settings.block_s, take)
        states = [
            state.with_block(_result(tally, state, block, settings))
            for tally, state in zip(tallies, states, strict=True)
        ]
    return states


def _guarded(state: ExperimentState, block: int, tally: BlockTally) -> ExperimentState:
    """The state after one more batch: as on a node, the guardrail does not wait for the block."""
    arm = state.plan.arm_of(block)
    if state.running and state.breaks_guardrail(arm, tally.batches):
        return state.ended(Progress.GUARDRAIL, 0.0)
    return state


def _result(
    tally: BlockTally, state: ExperimentState, block: int, settings: ExperimentSettings
) -> BlockResult:
    return tally.result(
        pair=block // 2,
        arm=state.plan.arm_of(block),
        began_s=0.0,
        block_s=settings.block_s,
    )


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


def figures_of(states: list[ExperimentState], seed: int = 1) -> dict[str, float | None]:
    """The figures of finished A/A experiments, by the keys of :data:`MEANINGS`.

    Raises:
        MeasureError: If fewer than two experiments have as many pairs as planned.
    """
    ratios = [state.log_ratios(PrimaryMeasure.P95) for state in states]
    pairs = states[0].plan.pairs
    whole = np.array([one for one in ratios if len(one) == pairs])
    if len(whole) < 2:
        raise MeasureError(
            "Too few experiments have all their pairs.",
            next_step="Choose a twin whose application answers in every second.",
        )
    fixed = [_p_value(one, seed) <= ALPHA for one in whole]
    certain = [state.progress is Progress.CERTAIN for state in states]
    guarded = [state.progress is Progress.GUARDRAIL for state in states]
    return {
        "experiments": float(len(states)),
        "pairs": float(pairs),
        "fixed_alarm_share": float(np.mean(fixed)),
        "fixed_excess_p": _excess_p(fixed),
        "certain_alarm_share": float(np.mean(certain)),
        "certain_excess_p": _excess_p(certain),
        "guardrail_alarm_share": float(np.mean(guarded)),
        **planned_against_seen(whole),
    }


def _excess_p(alarms: list[bool]) -> float:
    """The chance of so many alarms, or more, if each experiment gives one with ``ALPHA``."""
    return float(binomtest(sum(alarms), len(alarms), ALPHA, alternative="greater").pvalue)


def _p_value(log_ratios: Array, seed: int) -> float:
    ratio = paired_ratio(np.ones(len(log_ratios)), np.exp(log_ratios), seed=seed)
    return 1.0 if ratio.p_value is None else ratio.p_value


def planned_against_seen(log_ratios: Array) -> dict[str, float | None]:
    """Whether experiments show the effect that was planned from what was recorded before.

    Each experiment is planned by the spread of the first half of its pairs, and an effect is then
    laid on the second half.

    Args:
        log_ratios: Those of A/A experiments, ``(experiments, pairs)``, at least 8 pairs.
    """
    half = log_ratios.shape[1] // 2
    spreads = np.sqrt(np.mean(np.square(log_ratios[:, :half]), axis=1))
    planned = np.array([planned_shift(half, float(spread)) for spread in spreads])
    known = np.isfinite(planned)
    if not known.any():
        return {"planned_effect_share": None, "planned_found_share": None, "needed_ratio": None}
    later, shifts = log_ratios[known, half : 2 * half], planned[known]
    found = {ratio: _found_share(later + (ratio * shifts)[:, None]) for ratio in _RATIOS}
    enough = [ratio for ratio, share in found.items() if share >= POWER]
    return {
        "planned_effect_share": float(np.expm1(np.median(shifts))),
        "planned_found_share": _found_share(later + shifts[:, None]),
        "needed_ratio": min(enough, default=None),
    }


def planned_shift(pairs: int, spread: float) -> float:
    """The logarithm of the smallest effect for which the planner asks for no more than ``pairs``.

    Returns:
        NaN if it is more than twice the latency.
    """
    shift = spread * _shift_in_spreads(pairs)
    return shift if shift <= _LARGEST_SHIFT else math.nan


@functools.cache
def _shift_in_spreads(pairs: int) -> float:
    """The same as a multiple of the spread, on which alone the power depends."""
    low, high = 0.0, _MOST_SPREADS
    while high - low > 1e-3:
        middle = 0.5 * (low + high)
        enough = power_of(pairs, math.expm1(middle), 1.0) >= POWER
        low, high = (low, middle) if enough else (middle, high)
    return high


def _found_share(log_ratios: Array) -> float:
    """The share of experiments that find a difference, by the test that the planner assumes."""
    return float((ttest_1samp(log_ratios, 0.0, axis=1).pvalue <= ALPHA).mean())


def bench_experiments(
    twin: FittedTwin, settings: ExperimentSettings, report: Report = silent
) -> dict[str, float | None]:
    """Simulate A/A experiments and return their figures.

    Raises:
        MeasureError: If the twin's application answers too rarely.
    """
    return figures_of(simulate(twin, settings, report), settings.seed)
