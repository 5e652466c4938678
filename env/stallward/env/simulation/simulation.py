"""Many twin nodes stepped by actions: the core of both Gymnasium environments of the twin.

An action holds for ``ticks_per_action`` ticks. It passes the same guard rules as on a node before
it reaches the twin. Domain randomisation draws parameters from the fitted distribution, and
nuisance as it was measured: other request rates and node sizes, fewer slots, late samples, slow
levers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.guard.budgets import Budgets
from stallward.agent.action_table import ACTION_TABLES, SET_POINTS, ActionTableName
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.desired import SLOTS
from stallward.agent.observation.raw import RawFrame
from stallward.env.errors import TwinError
from stallward.env.objective import SLOW_RATIO, TARGET_RATIO, check_quantile
from stallward.env.simulation.nuisance import NO_NUISANCE, NUMBERS, Nuisance, draw_sensors
from stallward.env.simulation.observe import ENCODER
from stallward.env.simulation.sharing.state import SHARING, begin, numbers_of
from stallward.env.simulation.step import observe_first, step_all
from stallward.env.simulation.step_buffers import (
    MEASURED,
    RewardTerms,
    StepBuffers,
    make_buffers,
    measured_by_name,
)
from stallward.env.simulation.varied_nodes import between, vary_nodes
from stallward.env.twin.batch import TICK_S, TwinBatch
from stallward.env.twin.frame import raw_frames
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.physics.levers import SHARE_TICKS, rules_of
from stallward.env.twin.physics.others import MOST_OTHERS
from stallward.env.twin.physics.randomness import keys_of, uniforms
from stallward.env.twin.simd.layout import Arrays, copy_tiles

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

OBSERVATION_BOUND: Final = 64.0
"""The bound of the observation space, far beyond the values of any node."""
_EPISODES_FROM: Final = 1 << 40
"""A node's random numbers from this index on are for its episodes, those below for decisions."""
_NODE_NUMBERS: Final = 10 + 4 * SLOTS
_EPISODE_NUMBERS: Final = _NODE_NUMBERS + NUMBERS
"""How many random numbers an episode takes: for the node, then for its sensors."""
_NOT_PAUSED_SHARE: Final = 0.3
"""Chance that a slot was not paused in the minute before an episode."""
_PAUSE_TICKS: Final = 55
"""The period of the pauses before an episode: as long and as far apart as the guard allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """How episodes are made and rewarded."""

    episode_s: float = 120.0
    ticks_per_action: int = 2
    price: float = 6.0
    """Initial price of a second of severity 1, in units of full background speed."""
    excess_price: float = 0.0
    """Initial price of an excess of 1: requests that take twice the latency baseline."""
    slow_price: float = 0.0
    """Initial price of all requests being slow."""
    switch_cost: float = 0.01
    """Cost of one move of one lever."""
    action_table: ActionTableName = "levels"
    """What actions are: limit levels, or set-points of ``partition``."""
    partition: PartitionThresholds = field(default_factory=PartitionThresholds)
    """The numbers of ``partition``, where actions are set-points."""
    budgets: Budgets = field(default_factory=Budgets)
    nuisance: Nuisance = field(default_factory=Nuisance)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step, one entry for each node."""

    observation: NDArray[np.float32]
    reward: Array
    done: Mask
    progress: Array
    violated: Array
    """Severity of the last second, averaged over the ticks."""
    window_violated: Array
    """1 where the last window of at least a second and 20 requests missed the target."""
    moved: Array
    """How many levers moved."""
    excess: Array
    """Excess of the requests' latency over the baseline."""
    slow: Array
    """Share of slow requests."""

    @property
    def suffered(self) -> tuple[Array, ...]:
        """The figures that :data:`stallward.env.objective.SUFFERED` names, in that order."""
        return self.window_violated, self.excess, self.slow


class Simulation:
    """``B`` twin nodes behind the guard.

    A node's run depends on the seed and its index in the batch only, not on the other nodes.

    Args:
        twins: Fitted twins to draw episodes from, evenly.
        batch: How many nodes, ``B``.
        settings: How episodes are made and rewarded.
        seed: Everything random follows from it.
        draws: How many nodes have random numbers of their own; node ``i`` has those of node
            ``i % draws``, so that different actions can be tried on equal nodes. By default each
            node has its own.

    Attributes:
        table: What the entries of an action are.
        terms: The terms of the reward for each twin; a trainer may change them. The latency
            baseline and the latency of slow requests are first derived from the target.
        observation: What the policies see, ``(B, OBSERVATION_SIZE)``; a step overwrites it.
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
        others_slo_ms = np.ones((MOST_OTHERS, len(self.twins)))
        for k, twin in enumerate(self.twins):
            for a, other in enumerate(twin.scenario.others):
                others_slo_ms[a, k] = other.slo_ms
        prices = [settings.price, settings.excess_price, settings.slow_price]
        self.terms = RewardTerms(
            prices=np.repeat(np.array(prices)[:, None], len(self.twins), axis=1),
            baseline_ms=slo_ms / (2.0 * TARGET_RATIO),
            slow_ms=slo_ms * SLOW_RATIO / TARGET_RATIO,
            others_baseline_ms=others_slo_ms / (2.0 * TARGET_RATIO),
            others_slow_ms=others_slo_ms * SLOW_RATIO / TARGET_RATIO,
        )
        self.steps_per_episode = max(
            round(settings.episode_s / (TICK_S * settings.ticks_per_action)), 1
        )
        self._shared = draws
        self.twin = TwinBatch([t.scenario for t in self.twins], batch, seed=seed, draws=draws)
        self._draws = [self.twin.parameters_of_each(t.draws, t.others) for t in self.twins]
        self.table = ACTION_TABLES[settings.action_table]
        self._buffers: StepBuffers = make_buffers(batch, len(self.table.sizes))
        self._rules = rules_of(settings.budgets)
        self._numbers = numbers_of(settings.partition)
        self.steps = np.zeros(batch, dtype=np.int64)
        self.scenario = np.zeros(batch, dtype=np.int64)
        self._exact = self._buffers.observation[:batch]
        self._noisy_sensors = settings.nuisance.sensing > 0.0
        self.observation = np.zeros_like(self._exact) if self._noisy_sensors else self._exact
        self._gains = np.ones_like(self._exact)
        self._offsets = np.zeros_like(self._exact)
        self._episodes = np.zeros(batch, dtype=np.int64)
        self._decisions = np.zeros(batch, dtype=np.int64)
        self._keys = keys_of(seed + 1, batch, draws)

    @property
    def bytes_used(self) -> int:
        """Bytes of memory that the nodes and their observations take."""
        arrays: list[np.ndarray] = list(self._buffers)
        if self._noisy_sensors:
            arrays += [self.observation, self._gains, self._offsets]
        return self.twin.bytes_used + sum(array.nbytes for array in arrays)

    def seed(self, seed: int) -> None:
        """Restart the random streams from a new seed; every node is to be reset after it."""
        self._keys = keys_of(seed + 1, self.batch, self._shared)
        self._episodes[:] = 0
        self._decisions[:] = 0
        self.twin.ticks = 0  # the shares of a minute that were paused are counted by it
        self.twin.seed(seed)

    def reset(self, rows: Mask) -> None:
        """Begin episodes on the nodes in ``rows``; ``observation`` then holds their first ones."""
        index = np.flatnonzero(rows)
        if not len(index):
            return
        first = _EPISODES_FROM + _EPISODE_NUMBERS * self._episodes[index]
        numbers = uniforms(self._keys[index], first, _EPISODE_NUMBERS)
        self._episodes[index] += 1
        which = (numbers[0] * len(self.twins)).astype(np.int64)
        parameters = np.empty((*self._draws[0].shape[:2], len(index)))
        for k, twin in enumerate(self.twins):
            mine = np.flatnonzero(which == k)
            parameters[:, :, mine] = self._draws[k][:, :, twin.choose_by(numbers[1, mine])]
        node_numbers, sensor_numbers = numbers[:_NODE_NUMBERS], numbers[_NODE_NUMBERS:]
        nuisance, max_bytes = self.settings.nuisance, self.twin.scenario_arrays.max_bytes
        random_start = nuisance != NO_NUISANCE
        self.twin.reset(
            rows,
            which,
            parameters,
            cursor_s=60.0 * numbers[2 : 2 + SLOTS].T if random_start else 0.0,
            phase_s=60.0 * numbers[2 + SLOTS] if random_start else 0.0,
            vary=lambda nodes: vary_nodes(nodes, node_numbers[3 + SLOTS :], nuisance, max_bytes),
        )
        buffers = self._buffers
        buffers.slow[index] = node_numbers[-1] < nuisance.slow_lever_share
        buffers.action[index] = 0
        begin(Arrays(SHARING, buffers.sharing, index), self._numbers)
        self._remember_pauses(index, node_numbers[-1 - SLOTS : -1])
        known = node_numbers[-2 - SLOTS] < nuisance.usual_known
        known_ms = (
            between(nuisance.usual_ratio, node_numbers[-3 - SLOTS]) * self.terms.baseline_ms[which]
        )
        encoders = Arrays(ENCODER, buffers.encoders, index)
        encoders.fresh = 1.0
        encoders.known_ms = np.where(known, known_ms, np.nan)
        self.scenario[index] = which
        self.steps[index] = 0
        observe_first(self.twin.world, buffers, index)
        if self._noisy_sensors:
            gains, offsets = draw_sensors(sensor_numbers, self.settings.nuisance.sensing)
            self._gains[index], self._offsets[index] = gains, offsets
            self.observation[index] = self._exact[index] * gains + offsets

    def _remember_pauses(self, index: NDArray[np.int64], numbers: Array) -> None:
        """Set for how much of the minute before the episode the slots of new nodes were paused.

        Args:
            index: The nodes.
            numbers: Random numbers in [0, 1), ``(SLOTS, len(index))``.
        """
        reach = np.maximum(numbers - _NOT_PAUSED_SHARE, 0.0) / (1.0 - _NOT_PAUSED_SHARE)
        paused_ticks = np.rint(self.settings.nuisance.paused_before * reach * _PAUSE_TICKS)
        moment = np.arange(SHARE_TICKS)[:, None, None] % _PAUSE_TICKS
        ring = self._buffers.ring
        ring[:, :, index] = moment < paused_ticks
        self.twin.nodes.at(index).paused_ticks = ring[:, :, index].sum(axis=0, dtype=np.float64)

    def copy_from(self, source: Simulation, rows: NDArray[np.int64]) -> None:
        """Give every node the state of a node of another simulation; random streams stay.

        Args:
            source: A simulation of the same twins.
            rows: For each node, the index of the node to copy, ``(B,)``.
        """
        self.twin.copy_from(source.twin, rows)
        mine, theirs, here = self._buffers, source._buffers, slice(self.batch)
        copy_tiles(mine.frames, theirs.frames, rows)
        copy_tiles(mine.encoders, theirs.encoders, rows)
        copy_tiles(mine.sharing, theirs.sharing, rows)
        mine.ring[:, :, here] = theirs.ring[:, :, rows]
        for name in ("observation", "action", "slow"):
            getattr(mine, name)[here] = getattr(theirs, name)[rows]
        if self._noisy_sensors:
            self._gains[:], self._offsets[:] = source._gains[rows], source._offsets[rows]
            self.observation[:] = source.observation[rows]
        self.scenario[:], self.steps[:] = source.scenario[rows], source.steps[rows]

    def frames(self) -> list[RawFrame]:
        """The raw frame that each node reports now."""
        return raw_frames(self._buffers.frames, np.arange(self.batch))

    def stagger(self) -> None:
        """Spread the ends of the running episodes, as if they had begun at different times."""
        last = _EPISODES_FROM - 1 - self._episodes
        number = uniforms(self._keys, last, 1)[0]
        self.steps[:] = (number * self.steps_per_episode).astype(np.int64)

    def step(self, actions: NDArray[np.int64]) -> StepResult:
        """Hold ``actions``, ``(B, len(table.sizes))``, for the ticks of one decision."""
        settings, buffers, twin = self.settings, self._buffers, self.twin
        ticks = settings.ticks_per_action
        late = uniforms(self._keys, self._decisions, 1)[0] < settings.nuisance.late_share
        self._decisions += 1
        buffers.wanted[: self.batch] = actions
        buffers.late[: self.batch] = late
        measured = MEASURED.empty(self.batch)
        step_all(
            twin.world, buffers, measured, self._rules, self._numbers,
            self.table is SET_POINTS, self.terms, settings.switch_cost, twin.ticks, ticks,
        )  # fmt: skip
        twin.ticks += ticks
        self.steps += 1
        if self._noisy_sensors:
            np.multiply(self._exact, self._gains, out=self.observation)
            self.observation += self._offsets
        return StepResult(
            observation=self.observation,
            done=self.steps >= self.steps_per_episode,
            **measured_by_name(measured, self.batch),
        )
