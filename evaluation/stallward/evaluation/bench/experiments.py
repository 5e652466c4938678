"""``stallward bench experiments``: how often experiments on a node are wrong, and what they see.

Hundreds of experiments run on twin nodes, each with blocks, tally, bounds and report of a real
one. Both arms are the same controller (A/A), so every difference that an experiment finds is a
false alarm. For the power, the treatment's latencies are raised by a known factor afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from stallward.actuator.experiments.block_tally import BlockResult, BlockTally, TickFacts
from stallward.actuator.experiments.plan import Candidate, ExperimentPlan, PrimaryMeasure
from stallward.actuator.experiments.state import Before, ExperimentState, Progress
from stallward.agent.observation.raw import NODE
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.evaluation.errors import MeasureError
from stallward.evaluation.experiments.analysis import paired_ratio
from stallward.evaluation.experiments.planning import plan_pairs
from stallward.evaluation.measures.bootstrap import Array
from stallward.evaluation.measures.power import POWER
from stallward.training.progress import Report, silent
from stallward.training.selection import arm as twin_arm

STEP_S: Final = 1.0
ALPHA: Final = 0.05
_SILENCE_S: Final = 5.0
_EFFECTS: Final = np.linspace(0.0, 1.0, 201)
"""The effects that are tried for the power: up to twice the latency."""
_P95: Final = NODE["latency_p95_ms"]

MEANINGS: Final = {
    "experiments": "experiments of one controller with itself, each on a twin node of its own",
    "pairs": "pairs of blocks in each",
    "fixed_alarm_share": f"share that found a difference after all pairs (at most {ALPHA:g})",
    "certain_alarm_share": f"share that ever was certain of one, looking at each pair (at most "
    f"{ALPHA:g})",
    "guardrail_alarm_share": "share that the guardrail stopped (at most 0.01)",
    "pair_spread": "standard deviation over pairs of the logarithm of the ratio of p95",
    "planned_effect_share": f"effect on p95 that `ab plan` says these pairs show with a chance of "
    f"{POWER:g}",
    "seen_effect_share": "effect that this share of the experiments did show",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSettings:
    """The experiments that are simulated."""

    experiments: int = 200
    pairs: int = 12
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
    arm = twin_arm.Arm.of_partition()
    simulation = Simulation(
        [twin], settings.experiments, arm.on(SimulationSettings()), seed=settings.seed
    )
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
            for tally, p95_ms in zip(tallies, p95s_ms, strict=True):  # noqa: B023 - used here only
                tally.take(TickFacts(time_s=now_s, p95_ms=p95_ms, background_cpu_us=None))

        seconds(settings.block_s, take)
        states = [
            state.with_block(_result(tally, state, block, settings))
            for tally, state in zip(tallies, states, strict=True)
        ]
    return states


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
    spread = float(np.sqrt(np.mean(np.square(whole))))
    p_values = np.array([_p_value(one, seed) for one in whole])
    return {
        "experiments": float(len(states)),
        "pairs": float(pairs),
        "fixed_alarm_share": float((p_values <= ALPHA).mean()),
        "certain_alarm_share": _share(states, Progress.CERTAIN),
        "guardrail_alarm_share": _share(states, Progress.GUARDRAIL),
        "pair_spread": spread,
        "planned_effect_share": planned_effect(pairs, spread),
        "seen_effect_share": seen_effect(whole),
    }


def _share(states: list[ExperimentState], progress: Progress) -> float:
    return sum(state.progress is progress for state in states) / len(states)


def _p_value(log_ratios: Array, seed: int) -> float:
    ratio = paired_ratio(np.ones(len(log_ratios)), np.exp(log_ratios), seed=seed)
    return 1.0 if ratio.p_value is None else ratio.p_value


def planned_effect(pairs: int, spread: float) -> float | None:
    """The smallest effect for which the planner asks for no more than these pairs."""
    for effect in _EFFECTS[1:]:
        needed = plan_pairs(spread, float(effect)).fixed_pairs
        if needed is not None and needed <= pairs:
            return float(effect)
    return None


def seen_effect(log_ratios: Array) -> float | None:
    """The smallest effect that a share of :data:`POWER` of the experiments shows.

    Args:
        log_ratios: Those of experiments without an effect, ``(experiments, pairs)``.

    Returns:
        ``None`` if it is larger than all that are tried.
    """
    from scipy.stats import ttest_1samp  # noqa: PLC0415 - takes a second to import

    for effect in _EFFECTS:
        shifted = log_ratios + math.log1p(effect)
        found = ttest_1samp(shifted, 0.0, axis=1).pvalue <= ALPHA
        if found.mean() >= POWER:
            return float(effect)
    return None


def bench_experiments(
    twin: FittedTwin, settings: ExperimentSettings, report: Report = silent
) -> dict[str, float | None]:
    """Simulate A/A experiments and return their figures.

    Raises:
        MeasureError: If the twin's application answers too rarely.
    """
    return figures_of(simulate(twin, settings, report), settings.seed)
