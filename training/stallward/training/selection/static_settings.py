"""Static settings, measured on twins, and the constraints that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

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

_MEASURED_S: Final = 30.0
_TICKS_PER_ACTION: Final = 2
_DRAWS: Final = 16


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
    candidates: int = 128,
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
        for _ in range(max(candidates - len(uniform) - len(partial_settings), 0))
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
