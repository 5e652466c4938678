"""``excite``: random actions with logged propensities, for recordings to learn from.

The actions are limit levels, or with ``table=set-points`` set-points that ``partition`` works
within. It draws on every node, whichever levers there are: a recording has what was granted, and
what came of each lever.

At each tick the whole action is drawn anew with probability ``tick/dwell``. Dwell times are
therefore geometric, and the effect of an action has time to show before the next one. A redraw
makes the first choice everywhere with probability ``rest``: it releases everything, or leaves
everything to ``partition``. Otherwise it draws every component independently. Without ``rest``, a
redraw with four slots would release everything only once in a thousand times, and a policy that
does little could not be learned. The propensity is the probability of the whole action given the
previous one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stallward.agent.action_table import ACTION_TABLES, LEVELS, find_action_table
from stallward.agent.controller import Decision, NodeContext
from stallward.agent.controllers.partition import PartitionController, PartitionThresholds
from stallward.agent.desired import SLOTS, DesiredState, decode_action
from stallward.agent.errors import ControllerError
from stallward.agent.plugin import MAX_SEED, ControllerEntry, number
from stallward.agent.sample import Sample
from stallward.agent.set_points import decode_set_points


class ExciteController:
    """Draws from the whole action table.

    Args:
        arguments: ``table`` (the action table, default ``levels``), ``dwell_s`` (mean time an
            action holds, default 3 s), ``rest`` (probability that a redraw makes the first choice
            everywhere, default 0.2), ``pause`` (probability that any other redraw pauses a slot,
            default 0.35), ``seed`` (added to the context's, default 0).

    Raises:
        ControllerError: If an argument is out of range.

    Attributes:
        redraw: Probability with which the action is drawn anew at a tick.
        rest: Probability that a redraw releases everything.
    """

    name = "excite"
    needs_processes = False

    def __init__(self, arguments: Mapping[str, str]) -> None:
        name = arguments.get("table", LEVELS.name)
        table = find_action_table(name)
        if table is None:
            raise ControllerError(
                f"There is no action table {name!r:.80}.",
                next_step=f"Choose one of: {', '.join(ACTION_TABLES)}.",
            )
        self.table = table
        self._partition = PartitionController(PartitionThresholds())
        self._dwell_s = number(arguments, "dwell_s", 3.0)
        self._pause_probability = number(arguments, "pause", 0.35)
        self._seed_offset = int(number(arguments, "seed", 0, low=0, high=MAX_SEED))
        self.rest = number(arguments, "rest", 0.2)
        probabilities = (self._pause_probability, self.rest)
        if self._dwell_s <= 0.0 or not all(0.0 <= p <= 1.0 for p in probabilities):
            raise ControllerError(
                "dwell_s must be positive, and each of pause and rest a probability.",
                next_step="For example excite:dwell_s=3,pause=0.35,rest=0.2.",
            )
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def reset(self, context: NodeContext) -> None:
        """Start from the node's default with a generator of the context's seed."""
        self._context = context
        self._partition.reset(context)
        self._generator = np.random.default_rng((context.seed, self._seed_offset))
        self.redraw = min(1.0, context.tick_period_s / self._dwell_s)
        self._action = (0,) * len(self.table.sizes)

    def probabilities(self, component: int) -> NDArray[np.float64]:
        """The distribution of ``component`` in a redraw that does not release everything."""
        size = self.table.sizes[component]
        if self.table is LEVELS and component < 2 * SLOTS and component % 2 == 0:
            return np.array([1.0 - self._pause_probability, self._pause_probability])
        weights = np.ones(size)
        weights[0] = 2.0  # the node's default is twice as likely as any one intervention
        return np.asarray(weights / weights.sum())

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Draw a new action or hold the last one, and log how likely the outcome was."""
        present = len(sample.slots)
        sizes, each = self.table.sizes, len(self.table.slot_sizes)
        components = (*range(each * present), *range(each * SLOTS, len(sizes)))
        previous, random = self._action, self._generator
        if random.random() < self.redraw:
            drawn = [0] * len(sizes)
            if random.random() >= self.rest:
                for component in components:
                    probabilities = self.probabilities(component)
                    drawn[component] = int(random.choice(len(probabilities), p=probabilities))
            self._action = tuple(drawn)
        independent = math.prod(float(self.probabilities(c)[self._action[c]]) for c in components)
        released = 0.0 if any(self._action) else self.rest
        redrawn = (1.0 - self.rest) * independent + released
        held = 1.0 - self.redraw if self._action == previous else 0.0
        return Decision(
            desired=self._desired(sample),
            reason="random",
            action=self._action,
            propensity=held + self.redraw * redrawn,
        )

    def _desired(self, sample: Sample) -> DesiredState:
        if self.table is not LEVELS:
            return self._partition.divide(sample, decode_set_points(self._action)).desired
        floors = [self._context.floor(i) for i in range(len(sample.slots))]
        return decode_action(self._action, sample.slot_states, floors)


ENTRY = ControllerEntry(
    name="excite",
    summary="random pauses, limits and profiles with logged propensities",
    make=ExciteController,
    parameters={
        "table": "what is drawn: levels (default) or set-points",
        "dwell_s": "mean seconds an action holds (default 3)",
        "rest": "probability that a redraw releases everything (default 0.2)",
        "pause": "probability that any other redraw pauses a slot (default 0.35)",
        "seed": "added to the run's seed (default 0)",
    },
)
