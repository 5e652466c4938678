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

from stallward.actuator.guard import Budgets
from stallward.agent.desired import ACTION_SIZES, PROFILES, SLOTS
from stallward.agent.observation import OBSERVATION_SIZE, ObservationEncoder
from stallward.agent.raw import NODE, RawFrame
from stallward.env.errors import TwinError
from stallward.env.reward import (
    AT_TARGET,
    check_quantile,
    mean_progress,
    reward,
    window_severity,
)
from stallward.env.twin.core import NODE_DIRTY_RATIOS, NODE_SWAPPINESS, TICK_S, TwinBatch
from stallward.env.twin.fitted import FittedTwin
from stallward.env.twin.frame import fill_frame, held_bytes
from stallward.env.twin.levers import (
    LeverStates,
    granted_limit_bytes,
    may_pause,
    wanted_limit_bytes,
)
from stallward.env.twin.parameters import to_array
from stallward.env.twin.scenario import PAGE_BYTES

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

OBSERVATION_BOUND: Final = 64.0
"""Observations are within this, far outside what any node gives."""
_P95: Final = NODE["latency_p95_ms"]
_AGE: Final = NODE["latency_age_s"]
_SWAPPINESS: Final = np.array(
    [NODE_SWAPPINESS if p.swappiness is None else float(p.swappiness) for p in PROFILES]
)
_DIRTY_START: Final = np.array(
    [
        NODE_DIRTY_RATIOS[0]
        if p.dirty_background_ratio is None
        else p.dirty_background_ratio / 100
        for p in PROFILES
    ]
)
_DIRTY_BLOCK: Final = np.array(
    [NODE_DIRTY_RATIOS[1] if p.dirty_ratio is None else p.dirty_ratio / 100 for p in PROFILES]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nuisance:
    """What varies from episode to episode beyond the fitted draws."""

    rate_ratio: tuple[float, float] = (0.7, 1.4)
    """Request rate, times the scenario's."""
    zone_ratio: tuple[float, float] = (0.85, 1.2)
    slot_missing_share: float = 0.15
    """Chance that a slot is absent (one at least stays)."""
    late_share: float = 0.02
    """Chance that a decision sees the observation before the newest."""
    slow_lever_share: float = 0.1
    """Chance of an episode whose actions take hold a tick late."""


NO_NUISANCE: Final = Nuisance(
    rate_ratio=(1.0, 1.0),
    zone_ratio=(1.0, 1.0),
    slot_missing_share=0.0,
    late_share=0.0,
    slow_lever_share=0.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """How episodes are made and rewarded."""

    episode_s: float = 60.0
    ticks_per_action: int = 2
    price: float = 6.0
    """Of every window missing the target by far, in units of full background speed, to begin."""
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
    """1 where the last second's p95 misses the target."""
    moved: Array


class Simulation:
    """``B`` twin nodes behind the guard.

    Args:
        twins: Fitted twins to draw episodes from, evenly.
        batch: Nodes, ``B``.
        settings: How episodes are made and rewarded.
        seed: Everything random follows from it.

    Attributes:
        price: The price in force for each twin, ``(len(twins),)``; a trainer may change it.
    """

    def __init__(
        self,
        twins: Sequence[FittedTwin],
        batch: int,
        settings: SimulationSettings,
        *,
        seed: int,
    ) -> None:
        if not twins:
            raise TwinError("There is no twin to simulate.", next_step="Run `stallward fit`.")
        for twin in twins:
            check_quantile(twin.scenario.name, twin.scenario.slo_quantile)
        self.twins = tuple(twins)
        self.settings = settings
        self.batch = batch
        self.price = np.full(len(self.twins), settings.price)
        self.steps_per_episode = max(
            round(settings.episode_s / (TICK_S * settings.ticks_per_action)), 1
        )
        self._draws = [to_array(t.draws) for t in self.twins]
        self.twin = TwinBatch([t.scenario for t in self.twins], batch, seed=seed)
        self.levers = LeverStates(batch, TICK_S)
        self.encoder = ObservationEncoder(batch)
        self.frame = RawFrame.empty(batch)
        self.rng = np.random.default_rng(seed)
        self.steps = np.zeros(batch, dtype=np.int64)
        self._slow = np.zeros(batch, dtype=bool)
        self._profile = np.zeros(batch, dtype=np.int64)
        self._action = np.zeros((len(ACTION_SIZES), batch), dtype=np.int64)
        self.observation = np.zeros((batch, OBSERVATION_SIZE), dtype=np.float32)

    def seed(self, seed: int) -> None:
        """Start the random streams afresh."""
        self.rng = np.random.default_rng(seed)
        self.twin.seed(seed + 1)

    def reset(self, rows: Mask) -> None:
        """Begin new episodes on the nodes in ``rows``; ``observation`` then holds their first."""
        count = int(rows.sum())
        if not count:
            return
        which = self.rng.integers(len(self.twins), size=count)
        parameters = np.empty((len(self._draws[0]), count))
        for k, twin in enumerate(self.twins):
            mine = np.flatnonzero(which == k)
            parameters[:, mine] = self._draws[k][:, twin.choose(self.rng, len(mine))]
        index = np.flatnonzero(rows)
        random_start = self.settings.nuisance != NO_NUISANCE
        cursor = self.rng.uniform(0, 60, (SLOTS, count)) if random_start else 0.0
        phase = self.rng.uniform(0, 60, count) if random_start else 0.0
        self.twin.reset(rows, which, parameters, cursor_s=cursor, phase_s=phase)
        self._vary(index)
        self.levers.reset(rows)
        self.encoder.reset(rows)
        self.encoder.set_slo(self.twin.columns.slo_ms, rows)
        self.steps[rows] = 0
        self._profile[rows] = 0
        self._action[:, rows] = 0
        fill_frame(self.frame, self.twin, self.levers, self._profile.astype(np.float64))
        # The other nodes' histories must not see this frame: it has a tick less for them.
        first = ObservationEncoder(count, self.twin.columns.slo_ms[index])
        self.observation[index] = first.encode(
            RawFrame(node=self.frame.node[index], slots=self.frame.slots[index])
        )

    def _vary(self, index: NDArray[np.int64]) -> None:
        """Draw the nuisance of the nodes ``index``."""
        nuisance, c, rng = self.settings.nuisance, self.twin.columns, self.rng
        count = len(index)
        c.rate_per_s[index] *= rng.uniform(*nuisance.rate_ratio, count)
        c.zone_pages[index] *= rng.uniform(*nuisance.zone_ratio, count)
        present = c.present[:, index]
        keep = present * (rng.random(present.shape) >= nuisance.slot_missing_share)
        c.present[:, index] = np.where(keep.sum(axis=0) > 0, keep, present)
        c.there[:, index] = c.present[:, index]
        self._slow[index] = rng.random(count) < nuisance.slow_lever_share

    def step(self, actions: NDArray[np.int64]) -> StepResult:
        """Hold ``actions`` ``(B, len(ACTION_SIZES))`` for the ticks of one decision."""
        ticks = self.settings.ticks_per_action
        wanted = actions.T
        before = self.observation
        total, progress, violated, bad = np.zeros((4, self.batch))
        price = self.price[self.twin.columns.scenario]
        moved = np.zeros(self.batch)
        for k in range(ticks):
            late = self._slow if k == 0 else np.zeros(self.batch, dtype=bool)
            action = np.where(late, self._action, wanted)
            changed = self._tick(action)
            done_share = mean_progress(self.twin.background.progress, self.twin.background.on)
            bad = self._window_severity()
            total += reward(done_share, bad, changed, price, self.settings.switch_cost)
            progress += done_share / ticks
            violated += bad / ticks
            moved += changed
            if k == ticks - 2:
                before = self.observation
        self._action = wanted.copy()
        self.steps += 1
        late = self.rng.random(self.batch) < self.settings.nuisance.late_share
        seen = (
            np.where(late[:, None], before, self.observation) if late.any() else self.observation
        )
        return StepResult(
            observation=seen,
            reward=total / ticks,
            done=self.steps >= self.steps_per_episode,
            progress=progress,
            violated=violated,
            window_violated=(bad > AT_TARGET).astype(np.float64),
            moved=moved,
        )

    def _tick(self, action: NDArray[np.int64]) -> Array:
        budgets, c, levers = self.settings.budgets, self.twin.columns, self.levers
        paused = (action[0 : 2 * SLOTS : 2] == 1) & may_pause(levers, budgets, TICK_S)
        paused &= c.present > 0
        want = wanted_limit_bytes(action[1 : 2 * SLOTS : 2], levers.reference_bytes, c.floor_bytes)
        limit = granted_limit_bytes(want, levers, c.floor_bytes, paused, budgets)
        limit[c.present == 0] = np.nan
        profile = action[-1]
        moved = levers.apply(paused, limit) + (profile != self._profile)
        self._profile = profile.copy()
        self.twin.tick(
            paused,
            np.where(np.isnan(limit), np.inf, limit / PAGE_BYTES),
            _SWAPPINESS[profile],
            (_DIRTY_START[profile], _DIRTY_BLOCK[profile]),
        )
        levers.advance(held_bytes(self.twin))
        fill_frame(self.frame, self.twin, levers, profile.astype(np.float64))
        self.observation = self.encoder.encode(self.frame)
        return np.asarray(moved)

    def _window_severity(self) -> Array:
        node, c = self.frame.node, self.twin.columns
        return window_severity(
            node[:, _P95], node[:, _AGE], self.twin.time_s, c.slo_ms, c.rate_per_s
        )
