"""``excite``: random actions with logged propensities, for recordings to learn from.

The whole action is drawn anew at a tick with probability ``tick/dwell``, so dwell times are
geometric, and what an action does has time to show before the next one. A redraw releases
everything with probability ``rest``, otherwise every component (paused and limit level of each
slot, tuning profile) is drawn independently: with four slots, independent components alone would
leave nothing alone once in a thousand times, and a policy that does little could not be learned.
The propensity is that of the whole action given the previous one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controller import Decision, NodeContext
from stallward.agent.desired import ACTION_SIZES, SLOTS, decode_action
from stallward.agent.errors import ControllerError
from stallward.agent.plugin import MAX_SEED, ControllerEntry, number
from stallward.agent.sample import Sample


class ExciteController:
    """Draws from the whole action table.

    Args:
        arguments: ``dwell_s`` (mean time an action holds, default 3 s), ``rest`` (probability
            that a redraw releases everything, default 0.2), ``pause`` (otherwise, probability of
            paused, default 0.35), ``seed`` (added to the context's, default 0).

    Raises:
        ControllerError: If an argument is out of range.

    Attributes:
        redraw: Probability with which the action is drawn anew at a tick.
        rest: Probability that a redraw releases everything.
    """

    name = "excite"
    needs_processes = False

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self._dwell_s = number(arguments, "dwell_s", 3.0)
        self._pause_probability = number(arguments, "pause", 0.35)
        self._seed_offset = int(number(arguments, "seed", 0, low=0, high=MAX_SEED))
        self.rest = number(arguments, "rest", 0.2)
        shares = (self._pause_probability, self.rest)
        if self._dwell_s <= 0.0 or not all(0.0 <= share <= 1.0 for share in shares):
            raise ControllerError(
                "dwell_s must be positive, and each of pause and rest a probability.",
                next_step="For example excite:dwell_s=3,pause=0.35,rest=0.2.",
            )
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def reset(self, context: NodeContext) -> None:
        """Start from the node's default with a generator of the context's seed."""
        self._context = context
        self._generator = np.random.default_rng((context.seed, self._seed_offset))
        self.redraw = min(1.0, context.tick_period_s / self._dwell_s)
        self._action = (0,) * len(ACTION_SIZES)

    def probabilities(self, component: int) -> NDArray[np.float64]:
        """The distribution of ``component`` in a redraw that does not release everything."""
        size = ACTION_SIZES[component]
        if component < 2 * SLOTS and component % 2 == 0:
            return np.array([1.0 - self._pause_probability, self._pause_probability])
        weights = np.ones(size)
        weights[0] = 2.0  # the node's default twice as often as any one intervention
        return np.asarray(weights / weights.sum())

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Draw anew or hold; log how likely the outcome was."""
        present = len(sample.slots)
        entries = (*range(2 * present), 2 * SLOTS)
        before, random = self._action, self._generator
        if random.random() < self.redraw:
            after = [0] * len(ACTION_SIZES)
            if random.random() >= self.rest:
                for entry in entries:
                    chances = self.probabilities(entry)
                    after[entry] = int(random.choice(len(chances), p=chances))
            self._action = tuple(after)
        drawn = math.prod(float(self.probabilities(e)[self._action[e]]) for e in entries)
        chance = (1.0 - self.rest) * drawn + (0.0 if any(self._action) else self.rest)
        stayed = 1.0 - self.redraw if self._action == before else 0.0
        floors = [self._context.floor(i) for i in range(present)]
        return Decision(
            desired=decode_action(self._action, sample.slot_states, floors),
            reason="random",
            action=self._action,
            propensity=stayed + self.redraw * chance,
        )


ENTRY = ControllerEntry(
    name="excite",
    summary="random pauses, limits and profiles with logged propensities",
    make=ExciteController,
    parameters={
        "dwell_s": "mean seconds an action holds (default 3)",
        "rest": "probability that a redraw releases everything (default 0.2)",
        "pause": "otherwise, probability of a pause (default 0.35)",
        "seed": "added to the run's seed (default 0)",
    },
)
