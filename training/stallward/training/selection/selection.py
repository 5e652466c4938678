"""The choice between several trained policies, or several tuned rules.

Trainings differ by chance, and their best run overstates their quality (Agarwal et al., 2021). All
candidates are evaluated on the same fresh nodes. Half of the merit is the lower confidence bound
of the score in the worst scenario of the validation twins, on which none was trained. The other
half is the mean of these bounds over the training twins, because a policy may be good on the
validation twins just by doing little. Without validation twins, the bound in the worst training
scenario is all of the merit. The score of a policy that misses the target too often falls steeply,
so such a policy is kept only if all of them do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import LIMIT_RATIOS, PROFILES, SLOTS
from stallward.env.objective import Array, Slack, scored
from stallward.env.simulation.constraints import (
    BURN_IN_S,
    Ample,
    Constraints,
    hold,
    measure_ample,
    simulate,
    steps_in,
)
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.selection.rollout import Arm, Outcome, allow_as_much, evaluate

# ---------- Static settings, measured on twins, and the constraints that follow from them

_MEASURED_S: Final = 30.0
_TICKS_PER_ACTION: Final = 2
_DRAWS: Final = 16
_CANDIDATES: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticSettings:
    """Actions that are held for a whole episode, and their outcomes on twins."""

    actions: NDArray[np.int64]
    """The actions, ``(settings, len(ACTION_SIZES))``."""
    progress: Array
    """The background progress, ``(settings, len(twins))``."""
    suffered: Array
    """What the application suffered, ``(len(SUFFERED), settings, len(twins))``."""

    def best(self, constraints: Constraints) -> NDArray[np.int64]:
        """The action with the best score over all twins."""
        return np.asarray(self.actions[int(self._scores(constraints).mean(axis=1).argmax())])

    def _scores(self, constraints: Constraints) -> Array:
        return scored(self.progress, self.suffered, constraints.allowed[:, None, :])


def make_constraints(
    twins: Sequence[FittedTwin],
    settings: SimulationSettings,
    slack: Slack,
    *,
    seed: int,
) -> tuple[Constraints, StaticSettings]:
    """Measure static settings on twins, and derive what is allowed there.

    On nodes that are smaller or busier than their scenario, no controller may come close to ample
    memory. A policy is not to blame for what no setting avoids, and a price that rises without end
    would only teach it to hold everything back. So what the best static setting comes to, plus
    half the slack, is always allowed.
    """
    settings = replace(settings, action_table="levels", ticks_per_action=_TICKS_PER_ACTION)
    ample = measure_ample(twins, settings, seed=seed)
    static_settings = measure_static_settings(twins, settings, ample, seed=seed)
    allowed = np.repeat(slack.as_array(), len(twins), axis=1)
    allowed[0] += ample.windows
    least = static_settings.suffered.min(axis=1)
    allowed = np.maximum(allowed, least + slack.as_array() / 2.0)
    return Constraints(ample=ample, allowed=allowed), static_settings


def measure_static_settings(
    twins: Sequence[FittedTwin],
    settings: SimulationSettings,
    ample: Ample,
    *,
    seed: int,
) -> StaticSettings:
    """Measure static settings, all of them on the same nodes.

    The settings are the same limit on all slots, running or paused; limits or pauses of some slots
    only; and random limits for each slot.
    """
    rng = np.random.default_rng(seed)
    uniform = [
        _static_action((level,) * SLOTS, profile, paused=(paused,) * SLOTS)
        for level in range(len(LIMIT_RATIOS))
        for profile in range(len(PROFILES))
        for paused in (0, 1)
    ]
    deepest = len(LIMIT_RATIOS) - 1
    partial_settings = [
        _static_action(
            tuple(level * held for held in chosen),
            0,
            paused=tuple(paused * held for held in chosen),
        )
        for chosen in product((0, 1), repeat=SLOTS)
        for level, paused in ((2, 0), (deepest - 1, 0), (deepest, 1))
        if 0 < sum(chosen) < SLOTS
    ]
    random_settings = [
        _static_action(
            tuple(int(v) for v in rng.integers(len(LIMIT_RATIOS), size=SLOTS)),
            int(rng.integers(len(PROFILES))),
            paused=(0,) * SLOTS,
        )
        for _ in range(max(_CANDIDATES - len(uniform) - len(partial_settings), 0))
    ]
    actions = np.array(uniform + partial_settings + random_settings, dtype=np.int64)
    outcomes = [
        _measure_on_twin(actions, twin, settings, ample.only(slice(k, k + 1)), seed)
        for k, twin in enumerate(twins)
    ]
    progress, *suffered = np.moveaxis(np.array(outcomes), 0, -1)
    return StaticSettings(actions=actions, progress=progress, suffered=np.array(suffered))


def _measure_on_twin(
    actions: NDArray[np.int64],
    twin: FittedTwin,
    settings: SimulationSettings,
    ample: Ample,
    seed: int,
) -> Array:
    """Measure progress and what is suffered under each action.

    Returns:
        Progress, then each of ``SUFFERED``, ``(1 + len(SUFFERED), len(actions))``.
    """
    tiled = np.repeat(actions, _DRAWS, axis=0)
    simulation = simulate([twin], len(tiled), settings, ample, seed=seed, draws=_DRAWS)
    hold(simulation, tiled, steps_in(BURN_IN_S, settings))
    means = hold(simulation, tiled, steps_in(_MEASURED_S, settings))
    return np.asarray(means.reshape(len(means), len(actions), _DRAWS).mean(axis=2))


def _static_action(levels: tuple[int, ...], profile: int, *, paused: tuple[int, ...]) -> list[int]:
    slots = zip(paused, levels, strict=True)
    return [*(entry for slot in slots for entry in slot), profile]


_CHOICE_SEED: Final = 10_000
_FRESH_SEED: Final = 40_000
"""Added to the seed of the choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSet:
    """Twins, nodes and constraints on which policies are evaluated."""

    twins: tuple[FittedTwin, ...]
    """The twins, one for each scenario."""
    constraints: Constraints
    """What the application may suffer on each twin."""
    settings: SimulationSettings
    """The settings of the simulation."""
    episodes: int
    """The number of nodes for each scenario."""
    seed: int
    """The seed that the nodes are drawn with."""

    def outcomes(self, arm: Arm) -> dict[str, Outcome]:
        """The outcome of a controller by scenario; it is made for each."""
        return {
            twin.scenario.name: evaluate(
                arm.make(self.episodes),
                [twin],
                arm.on(self.settings),
                constraints=self.constraints.one(k),
                episodes=self.episodes,
                seed=self.seed,
            )
            for k, twin in enumerate(self.twins)
        }

    def allowed(self) -> dict[str, dict[str, float]]:
        """What the application may suffer, by scenario."""
        return self.constraints.as_json([twin.scenario.name for twin in self.twins])


@dataclass(frozen=True, slots=True, kw_only=True)
class Merit:
    """The figures that policies are chosen by."""

    value: float
    """The figure that decides; higher is better."""
    low: float
    """The lower confidence bound of the score in the worst validation scenario."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The evaluation sets that policies are chosen on."""

    validation: EvaluationSet
    """The validation twins, or without any the training twins."""
    training: EvaluationSet | None = None
    """The training twins; ``None`` without validation twins."""

    def merit(self, arm: Arm) -> Merit:
        """Evaluate a controller; combine its outcomes into the figures that it is chosen by."""
        low = worst_low(self.validation.outcomes(arm))
        if self.training is None:
            return Merit(value=low, low=low)
        lows = [outcome.score_low for outcome in self.training.outcomes(arm).values()]
        return Merit(value=0.5 * low + 0.5 * sum(lows) / len(lows), low=low)

    def outcomes(self, arm: Arm) -> dict[str, Outcome]:
        """The outcome of a controller by scenario, validation scenarios first."""
        return {name: o for one in self._sets() for name, o in one.outcomes(arm).items()}

    def allowed(self) -> dict[str, dict[str, float]]:
        """What the application may suffer, by scenario."""
        return {name: most for one in self._sets() for name, most in one.allowed().items()}

    def judged_on(self) -> list[str]:
        """The names of the validation scenarios."""
        return [twin.scenario.name for twin in self.validation.twins]

    def with_nodes(self, episodes: int, seed: int) -> Selection:
        """Repeat the selection on other nodes, ``episodes`` of each scenario."""
        validation = replace(self.validation, episodes=episodes, seed=seed)
        training = self.training and replace(self.training, episodes=episodes, seed=seed)
        return Selection(validation=validation, training=training)

    def on_fresh_nodes(self) -> Selection:
        """Repeat the selection on as many new nodes, for an unbiased evaluation of the choice.

        On the nodes that it was chosen on, the best of several looks better than it is.
        """
        return self.with_nodes(self.validation.episodes, _FRESH_SEED + self.validation.seed)

    def _sets(self) -> tuple[EvaluationSet, ...]:
        return (self.validation,) if self.training is None else (self.validation, self.training)


def make_selection(
    trained_on: Sequence[FittedTwin],
    judged_on: Sequence[FittedTwin],
    settings: SimulationSettings,
    *,
    slack: Slack,
    episodes: int,
    seed: int,
    as_much_as: Arm | None = None,
) -> Selection:
    """Make the selection, measuring what is allowed on all twins.

    Args:
        trained_on: The training twins.
        judged_on: The validation twins; may be empty.
        settings: The settings of the simulation.
        slack: What is allowed beyond ample memory.
        episodes: Nodes over all validation twins; each training twin gets as many as a validation
            twin.
        seed: The seed of the choice; no policy is trained on its nodes.
        as_much_as: A controller under which the application may suffer as much, too.
    """
    validation = judged_on or trained_on

    def evaluation_set(twins: Sequence[FittedTwin]) -> EvaluationSet:
        constraints, _ = make_constraints(twins, settings, slack, seed=_CHOICE_SEED + seed)
        if as_much_as is not None:
            constraints = allow_as_much(
                constraints, as_much_as, twins, settings, seed=_CHOICE_SEED + seed
            )
        return EvaluationSet(
            twins=tuple(twins),
            constraints=constraints,
            settings=settings,
            episodes=max(episodes // len(validation), 8),
            seed=_CHOICE_SEED + seed,
        )

    return Selection(
        validation=evaluation_set(validation),
        training=evaluation_set(trained_on) if judged_on else None,
    )


def worst_low(outcomes: Mapping[str, Outcome]) -> float:
    """The lower confidence bound of the score in the scenario where it is lowest."""
    return min(outcome.score_low for outcome in outcomes.values())


def as_json(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Outcomes as JSON values, for a policy's provenance."""
    return {name: outcome.as_json() for name, outcome in outcomes.items()}
