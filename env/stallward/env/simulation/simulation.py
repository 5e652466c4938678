"""Many twin nodes stepped by actions: the core that both Gymnasium faces share.

An action holds for ``ticks_per_action`` ticks. Between the action and the twin stand the same
guard rules as on a node. Domain randomisation draws from the fitted distribution and from
measured nuisance: other request rates and node sizes, fewer slots, late samples, slow levers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.guard.budgets import Budgets
from stallward.agent.desired import SLOTS
from stallward.agent.observation.raw import RawFrame
from stallward.env.errors import TwinError
from stallward.env.objective import TAIL, TARGET, check_quantile
from stallward.env.simulation.nuisance import NO_NUISANCE, NUMBERS, Nuisance, draw_sensors
from stallward.env.simulation.observe import ENCODER
from stallward.env.simulation.step import (
    MEASURED,
    Seen,
    Terms,
    make_seen,
    measured_by_name,
    observe_first,
    step_all,
)
from stallward.env.twin.batch import TICK_S, TwinBatch
from stallward.env.twin.frame import raw_frames
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.inputs.parameters import to_array
from stallward.env.twin.physics.levers import SHARE_TICKS, rules_of
from stallward.env.twin.physics.randomness import keys_of, uniforms
from stallward.env.twin.simd.layout import Arrays, Columns, copy_tiles

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

OBSERVATION_BOUND: Final = 64.0
"""Observations are within this, far outside what any node gives."""
_EPISODES_FROM: Final = 1 << 40
"""From here on, a node's numbers are those of its episodes; before, those of its decisions."""
_OF_NODE: Final = 9 + 4 * SLOTS
_PER_EPISODE: Final = _OF_NODE + NUMBERS
_NEVER_BEFORE: Final = 0.3
"""Chance that a slot was not paused in the minute before an episode."""
_PAUSE_TICKS: Final = 55
"""Pauses before an episode come once in so many ticks: as long and as far apart as they may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """How episodes are made and rewarded."""

    episode_s: float = 120.0
    ticks_per_action: int = 2
    price: float = 6.0
    """Of every second missing the target by far, in units of full background speed, to begin."""
    excess_price: float = 0.0
    """Of requests that take twice as long as usual."""
    slow_price: float = 0.0
    """Of all requests being slow ones."""
    switch_cost: float = 0.01
    budgets: Budgets = field(default_factory=Budgets)
    nuisance: Nuisance = field(default_factory=Nuisance)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did, one entry a node."""

    observation: NDArray[np.float32]
    reward: Array
    done: Mask
    progress: Array
    violated: Array
    """Severity of the last second, averaged over the ticks."""
    window_violated: Array
    """1 where the last window of at least a second and 20 requests missed the target."""
    moved: Array
    excess: Array
    """By how many times the usual latency the requests took longer."""
    slow: Array
    """Share of the requests that are slow ones."""

    @property
    def suffered(self) -> tuple[Array, ...]:
        """Each of :data:`SUFFERED`."""
        return self.window_violated, self.excess, self.slow


class Simulation:
    """``B`` twin nodes behind the guard.

    A node's run follows from the seed and its place in the batch, whatever runs beside it.

    Args:
        twins: Fitted twins to draw episodes from, evenly.
        batch: Nodes, ``B``.
        settings: How episodes are made and rewarded.
        seed: Everything random follows from it.
        draws: So many nodes draw for themselves, and the others what the one so many before them
            does: different actions meet the same nodes. All by default.

    Attributes:
        terms: Prices in force for each twin, what latency is usual and from which on a request is
            slow; a trainer may change them. At first the latter two follow from the target.
        observation: What the policies are shown, ``(B, OBSERVATION_SIZE)``; a step overwrites it.
        steps: Decisions since each node's reset, ``(B,)``.
    """

    def __init__(
        self,
        twins: Sequence[FittedTwin],
        batch: int,
        settings: SimulationSettings,
        *,
        seed: int,
        draws: int | None = None,
    ) -> None:
        if not twins:
            raise TwinError("There is no twin to simulate.", next_step="Run `stallward fit`.")
        for twin in twins:
            check_quantile(twin.scenario.name, twin.scenario.slo_quantile)
        self.twins = tuple(twins)
        self.settings = settings
        self.batch = batch
        slo_ms = np.array([twin.scenario.slo_ms for twin in self.twins])
        begin = [settings.price, settings.excess_price, settings.slow_price]
        self.terms = Terms(
            prices=np.repeat(np.array(begin)[:, None], len(self.twins), axis=1),
            usual_ms=slo_ms / (2.0 * TARGET),
            slow_ms=slo_ms * TAIL / TARGET,
        )
        self.steps_per_episode = max(
            round(settings.episode_s / (TICK_S * settings.ticks_per_action)), 1
        )
        self._draws = [to_array(t.draws) for t in self.twins]
        self._shared = draws
        self.twin = TwinBatch([t.scenario for t in self.twins], batch, seed=seed, draws=draws)
        self._seen: Seen = make_seen(batch)
        self._rules = rules_of(settings.budgets)
        self.steps = np.zeros(batch, dtype=np.int64)
        self.scenario = np.zeros(batch, dtype=np.int64)
        self._exact = self._seen.observation[:batch]
        self._senses = settings.nuisance.sensing > 0.0
        self.observation = np.zeros_like(self._exact) if self._senses else self._exact
        self._gains = np.ones_like(self._exact)
        self._offsets = np.zeros_like(self._exact)
        self._episodes = np.zeros(batch, dtype=np.int64)
        self._decisions = np.zeros(batch, dtype=np.int64)
        self._keys = keys_of(seed + 1, batch, draws)

    @property
    def bytes_used(self) -> int:
        """Memory that the nodes and their observations take."""
        arrays: list[np.ndarray] = list(self._seen)
        if self._senses:
            arrays += [self.observation, self._gains, self._offsets]
        return self.twin.bytes_used + sum(array.nbytes for array in arrays)

    def seed(self, seed: int) -> None:
        """Start the random streams afresh."""
        self._keys = keys_of(seed + 1, self.batch, self._shared)
        self._episodes[:] = 0
        self._decisions[:] = 0
        self.twin.seed(seed)

    def reset(self, rows: Mask) -> None:
        """Begin new episodes on the nodes in ``rows``; ``observation`` then holds their first."""
        index = np.flatnonzero(rows)
        if not len(index):
            return
        first = _EPISODES_FROM + _PER_EPISODE * self._episodes[index]
        numbers = uniforms(self._keys[index], first, _PER_EPISODE)
        self._episodes[index] += 1
        which = (numbers[0] * len(self.twins)).astype(np.int64)
        parameters = np.empty((len(self._draws[0]), len(index)))
        for k, twin in enumerate(self.twins):
            mine = np.flatnonzero(which == k)
            parameters[:, mine] = self._draws[k][:, twin.choose_by(numbers[1, mine])]
        luck, sensors = numbers[:_OF_NODE], numbers[_OF_NODE:]
        random_start = self.settings.nuisance != NO_NUISANCE
        self.twin.reset(
            rows,
            which,
            parameters,
            cursor_s=60.0 * numbers[2 : 2 + SLOTS].T if random_start else 0.0,
            phase_s=60.0 * numbers[2 + SLOTS] if random_start else 0.0,
            vary=lambda nodes: self._vary(nodes, luck[3 + SLOTS :]),
        )
        seen = self._seen
        seen.slow[index] = luck[-1] < self.settings.nuisance.slow_lever_share
        seen.action[index] = 0
        self._remember_pauses(index, luck[-1 - SLOTS : -1])
        nuisance = self.settings.nuisance
        known = luck[-2 - SLOTS] < nuisance.usual_known
        known_ms = _between(nuisance.usual_ratio, luck[-3 - SLOTS]) * self.terms.usual_ms[which]
        encoders = Arrays(ENCODER, seen.encoders, index)
        encoders.fresh = 1.0
        encoders.known_ms = np.where(known, known_ms, np.nan)
        self.scenario[index] = which
        self.steps[index] = 0
        observe_first(self.twin.world, seen, index)
        if self._senses:
            made = draw_sensors(sensors, self.settings.nuisance.sensing)
            self._gains[index], self._offsets[index] = made
            self.observation[index] = self._exact[index] * made[0] + made[1]

    def _remember_pauses(self, index: NDArray[np.int64], numbers: Array) -> None:
        """Let the slots of new nodes have been paused in the minute before.

        Args:
            index: The nodes.
            numbers: Random ones, ``(SLOTS, len(index))``.
        """
        reach = np.maximum(numbers - _NEVER_BEFORE, 0.0) / (1.0 - _NEVER_BEFORE)
        paused_ticks = np.rint(self.settings.nuisance.paused_before * reach * _PAUSE_TICKS)
        moment = np.arange(SHARE_TICKS)[:, None, None] % _PAUSE_TICKS
        ring = self._seen.ring
        ring[:, :, index] = moment < paused_ticks
        self.twin.nodes.at(index).paused_ticks = ring[:, :, index].sum(axis=0)

    def become(self, source: Simulation, rows: NDArray[np.int64]) -> None:
        """Let every node be what one of another simulation is; its luck from now on stays its own.

        Args:
            source: Of the same twins.
            rows: Which of its nodes, ``(B,)``.
        """
        self.twin.become(source.twin, rows)
        mine, theirs, here = self._seen, source._seen, slice(self.batch)
        copy_tiles(mine.frames, theirs.frames, rows)
        copy_tiles(mine.encoders, theirs.encoders, rows)
        mine.ring[:, :, here] = theirs.ring[:, :, rows]
        for name in ("observation", "action", "slow"):
            getattr(mine, name)[here] = getattr(theirs, name)[rows]
        if self._senses:
            self._gains[:], self._offsets[:] = source._gains[rows], source._offsets[rows]
            self.observation[:] = source.observation[rows]
        self.scenario[:], self.steps[:] = source.scenario[rows], source.steps[rows]

    def frames(self) -> list[RawFrame]:
        """What every node reports now, as a node does."""
        return raw_frames(self._seen.frames, np.arange(self.batch))

    def stagger(self) -> None:
        """Let the running episodes end at different times, as if they had begun so."""
        last = _EPISODES_FROM - 1 - self._episodes
        number = uniforms(self._keys, last, 1)[0]
        self.steps[:] = (number * self.steps_per_episode).astype(np.int64)

    def _vary(self, nodes: Columns, numbers: Array) -> None:
        """Change the descriptions of new nodes as the nuisance has it."""
        nuisance = self.settings.nuisance
        nodes["rate_per_s"] *= _between(nuisance.rate_ratio, numbers[0])
        nodes["zone_pages"] *= _between(nuisance.zone_ratio, numbers[1])
        present = nodes["present"]
        keep = present * (nuisance.slot_missing_share <= numbers[2 : 2 + SLOTS].T)
        some = keep.sum(axis=1, keepdims=True) > 0
        nodes["present"] = np.where(some, keep, present)
        nodes["there"] = nodes["present"]
        chance = numbers[2 + SLOTS : 2 + 2 * SLOTS].T
        known = np.maximum(nuisance.used_before - chance, 0.0) / max(nuisance.used_before, 1e-9)
        most_bytes = self.twin.table.most_bytes[nodes["scenario"].astype(np.int64)]
        nodes["kept_bytes"] = nodes["present"] * known * most_bytes

    def step(self, actions: NDArray[np.int64]) -> StepResult:
        """Hold ``actions`` ``(B, len(ACTION_SIZES))`` for the ticks of one decision."""
        settings, seen, twin = self.settings, self._seen, self.twin
        ticks = settings.ticks_per_action
        late = uniforms(self._keys, self._decisions, 1)[0] < settings.nuisance.late_share
        self._decisions += 1
        seen.wanted[: self.batch] = actions
        seen.late[: self.batch] = late
        measured = MEASURED.empty(self.batch)
        step_all(
            twin.world, seen, measured, self._rules, self.terms, settings.switch_cost,
            twin.ticks, ticks,
        )  # fmt: skip
        twin.ticks += ticks
        self.steps += 1
        if self._senses:
            np.multiply(self._exact, self._gains, out=self.observation)
            self.observation += self._offsets
        return StepResult(
            observation=self.observation,
            done=self.steps >= self.steps_per_episode,
            **measured_by_name(measured, self.batch),
        )


def _between(bounds: tuple[float, float], numbers: Array) -> Array:
    low, high = bounds
    return low + (high - low) * numbers
