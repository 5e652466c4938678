"""Settings that never change: what they come to on twins, and what is allowed beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import LIMIT_RATIOS, PROFILES, SLOTS
from stallward.env.objective import PENALTIES, SUFFERED, Array, Slack, scored
from stallward.env.simulation.constraints import (
    BURN_IN_STEPS,
    Ample,
    Constraints,
    measure_ample,
    simulate,
)
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin

_STEPS: Final = 150
_DRAWS: Final = 16
_SEVERITIES: Final = (0.02, 0.1, 0.3, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticSettings:
    """What settings that never change come to on twins."""

    actions: NDArray[np.int64]
    """``(settings, len(ACTION_SIZES))``."""
    progress: Array
    """Of the background, ``(settings, len(twins))``."""
    suffered: Array
    """Each of ``SUFFERED``, ``(len(SUFFERED), settings, len(twins))``."""

    def only(self, which: slice) -> StaticSettings:
        """On some of the twins."""
        return replace(self, progress=self.progress[:, which], suffered=self.suffered[:, :, which])

    def best(self, constraints: Constraints) -> NDArray[np.int64]:
        """The action with the best score over all twins."""
        return np.asarray(self.actions[int(self._scores(constraints).mean(axis=1).argmax())])

    def promising(self, index: int, slots: int, allowed: Array, count: int) -> NDArray[np.int64]:
        """Settings that are worth trying again and again on the twin ``index``.

        Those that do best when what goes beyond the allowed costs little, more and much.

        Args:
            index: Of the twin.
            slots: That it has; what is done to others makes no difference.
            allowed: Each of ``SUFFERED``, ``(len(SUFFERED),)``.
            count: How many at most.

        Returns:
            ``(n, len(ACTION_SIZES))``, doing nothing first.
        """
        found = {tuple(np.zeros(self.actions.shape[1], dtype=np.int64).tolist()): None}
        cost = PENALTIES @ np.maximum(self.suffered[:, :, index] - allowed[:, None], 0.0)
        orders = [
            np.argsort(severity * cost - self.progress[:, index], kind="stable")
            for severity in _SEVERITIES
        ]
        for row in np.stack(orders, axis=1).ravel():
            action = self.actions[row].copy()
            action[2 * slots : -1] = 0
            found.setdefault(tuple(action.tolist()))
            if len(found) >= count:
                break
        return np.array(list(found), dtype=np.int64)

    def _scores(self, constraints: Constraints) -> Array:
        return scored(self.progress, self.suffered, constraints.allowed[:, None, :])


def make_constraints(
    twins: Sequence[FittedTwin],
    settings: SimulationSettings,
    slack: Slack,
    *,
    seed: int,
) -> tuple[Constraints, StaticSettings]:
    """What is allowed on twins, and what settings that never change come to on them.

    On nodes that are smaller or busier than their scenario nobody may come so close to ample
    memory. What no setting avoids is no policy's fault: a price that rises for ever would only
    teach it to hold everything back. So half the slack beyond the best setting is allowed, too.
    """
    ample = measure_ample(twins, settings, seed=seed)
    statics = screen_static(twins, settings, ample, seed=seed)
    allowed = np.repeat(slack.as_array(), len(twins), axis=1)
    allowed[0] += ample.windows
    least = statics.suffered.min(axis=1)
    allowed = np.maximum(allowed, least + slack.as_array() / 2.0)
    return Constraints(ample=ample, allowed=allowed), statics


def screen_static(
    twins: Sequence[FittedTwin],
    settings: SimulationSettings,
    ample: Ample,
    *,
    seed: int,
    candidates: int = 128,
) -> StaticSettings:
    """Run settings that never change, all of them on the same nodes.

    Uniform limits; some slots held back for the others; random limits for each slot.
    """
    rng = np.random.default_rng(seed)
    uniform = [
        _static_action((level,) * SLOTS, profile, paused=(paused,) * SLOTS)
        for level in range(len(LIMIT_RATIOS))
        for profile in range(len(PROFILES))
        for paused in (0, 1)
    ]
    deepest = len(LIMIT_RATIOS) - 1
    held = [
        _static_action(
            tuple(level * one for one in chosen), 0, paused=tuple(paused * one for one in chosen)
        )
        for chosen in product((0, 1), repeat=SLOTS)
        for level, paused in ((2, 0), (deepest - 1, 0), (deepest, 1))
        if 0 < sum(chosen) < SLOTS
    ]
    mixed = [
        _static_action(
            tuple(int(v) for v in rng.integers(len(LIMIT_RATIOS), size=SLOTS)),
            int(rng.integers(len(PROFILES))),
            paused=(0,) * SLOTS,
        )
        for _ in range(max(candidates - len(uniform) - len(held), 0))
    ]
    actions = np.array(uniform + held + mixed, dtype=np.int64)
    found = [
        _run_statics(actions, twin, settings, ample.only(slice(k, k + 1)), seed)
        for k, twin in enumerate(twins)
    ]
    progress, *suffered = np.moveaxis(np.array(found), 0, -1)
    return StaticSettings(actions=actions, progress=progress, suffered=np.array(suffered))


def _run_statics(
    actions: NDArray[np.int64],
    twin: FittedTwin,
    settings: SimulationSettings,
    ample: Ample,
    seed: int,
) -> Array:
    """Progress and what was suffered under each action, ``(1 + len(SUFFERED), len(actions))``."""
    tiled = np.repeat(actions, _DRAWS, axis=0)
    simulation = simulate([twin], len(tiled), settings, ample, seed=seed, draws=_DRAWS)
    sums = np.zeros((1 + len(SUFFERED), len(tiled)))
    for k in range(BURN_IN_STEPS + _STEPS):
        result = simulation.step(tiled)
        if k >= BURN_IN_STEPS:
            sums += (result.progress, *result.suffered)
    means = sums.reshape(len(sums), len(actions), _DRAWS).mean(axis=2) / _STEPS
    return np.asarray(means)


def _static_action(levels: tuple[int, ...], profile: int, *, paused: tuple[int, ...]) -> list[int]:
    slots = zip(paused, levels, strict=True)
    return [*(entry for slot in slots for entry in slot), profile]
