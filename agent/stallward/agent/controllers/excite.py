"""``excite``: random actions with logged propensities, for recordings to learn from.

Every component of the action (paused and limit level of each slot, tuning profile) is redrawn
independently with probability ``1/dwell`` a tick, so dwell times are geometric. The propensity
is that of the whole action given the previous one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controller import (
    MAX_SEED,
    ControllerEntry,
    Decision,
    NodeContext,
    number,
    register,
)
from stallward.agent.desired import ACTION_SIZES, SLOTS, decode_action
from stallward.agent.errors import ControllerError
from stallward.agent.sample import Sample


class ExciteController:
    """Draws from the whole action table.

    Args:
        arguments: ``dwell_s`` (mean time an entry holds, default 3 s), ``pause`` (probability of
            paused at a redraw, default 0.35), ``seed`` (added to the context's, default 0).

    Raises:
        ControllerError: If an argument is out of range.

    Attributes:
        redraw: Probability with which an entry is drawn anew at a tick.
    """

    name = "excite"
    needs_processes = False

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self._dwell_s = number(arguments, "dwell_s", 3.0)
        self._pause_probability = number(arguments, "pause", 0.35)
        self._seed_offset = int(number(arguments, "seed", 0, low=0, high=MAX_SEED))
        if self._dwell_s <= 0.0 or not 0.0 <= self._pause_probability <= 1.0:
            raise ControllerError(
                "dwell_s must be positive and pause a probability.",
                next_step="For example excite:dwell_s=3,pause=0.35.",
            )
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def reset(self, context: NodeContext) -> None:
        """Start from the node's default with a generator of the context's seed."""
        self._context = context
        self._generator = np.random.default_rng((context.seed, self._seed_offset))
        self.redraw = min(1.0, context.tick_period_s / self._dwell_s)
        self._action = np.zeros(len(ACTION_SIZES), dtype=np.int64)

    def probabilities(self, component: int) -> NDArray[np.float64]:
        """The distribution a redraw of ``component`` uses."""
        size = ACTION_SIZES[component]
        if component < 2 * SLOTS and component % 2 == 0:
            return np.array([1.0 - self._pause_probability, self._pause_probability])
        weights = np.ones(size)
        weights[0] = 2.0  # the node's default twice as often as any one intervention
        return np.asarray(weights / weights.sum())

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Redraw some components; log how likely the outcome was."""
        present = len(sample.slots)
        propensity = 1.0
        for component in range(len(ACTION_SIZES)):
            if component < 2 * SLOTS and component // 2 >= present:
                continue
            probabilities = self.probabilities(component)
            before = int(self._action[component])
            if self._generator.random() < self.redraw:
                self._action[component] = self._generator.choice(
                    len(probabilities), p=probabilities
                )
            after = int(self._action[component])
            stay = 1.0 - self.redraw if after == before else 0.0
            propensity *= stay + self.redraw * float(probabilities[after])
        action = tuple(int(a) for a in self._action)
        floors = [self._context.floor(i) for i in range(present)]
        return Decision(
            desired=decode_action(action, sample.slot_states, floors),
            reason="random",
            action=action,
            propensity=propensity,
        )


register(
    ControllerEntry(
        name="excite",
        summary="random pauses, limits and profiles with logged propensities",
        make=ExciteController,
        parameters={
            "dwell_s": "mean seconds an entry of the action holds (default 3)",
            "pause": "probability of a pause at a redraw (default 0.35)",
            "seed": "added to the run's seed (default 0)",
        },
    )
)
