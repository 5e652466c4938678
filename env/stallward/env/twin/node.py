"""One node in the twin, with the interface of a real one: samples out, desired states in.

Every controller runs on it, behind the same engine and guard as on a node.
"""

from __future__ import annotations

import numpy as np

from stallward.agent.controller import NodeContext
from stallward.agent.desired import PROFILES, SLOTS, DesiredState
from stallward.agent.raw import RawFrame
from stallward.agent.sample import Sample
from stallward.env.recording import Requests, Units
from stallward.env.twin.core import NODE_DIRTY_RATIOS, NODE_SWAPPINESS, TICK_S, TwinBatch
from stallward.env.twin.frame import FIRST_PID, fill_frame, held_bytes, to_sample
from stallward.env.twin.latency import Array
from stallward.env.twin.levers import LeverStates
from stallward.env.twin.parameters import TwinParameters, to_array
from stallward.env.twin.scenario import PAGE_BYTES, TwinScenario


class TwinNode:
    """A simulated node with real-looking samples.

    Args:
        scenario: What runs on it.
        parameters: One draw of the fitted twin.
        seed: Everything random follows from it.

    Attributes:
        time_s: Seconds since the start.
    """

    def __init__(self, scenario: TwinScenario, parameters: TwinParameters, *, seed: int) -> None:
        self.scenario = scenario
        self._twin = TwinBatch([scenario], 1, seed=seed)
        self._twin.reset(
            np.ones(1, dtype=bool), np.zeros(1, dtype=np.int64), to_array([parameters])
        )
        self._levers = LeverStates(1, TICK_S)
        self._frame = RawFrame.empty(1)
        self._granted = DesiredState()
        self._sequence = 0
        self._rng = np.random.default_rng(seed + 1)
        self._scheduled_s: list[Array] = []
        self._sojourn_s: list[Array] = []
        self._units: list[Array] = []
        self._progress: list[Array] = []
        fill_frame(self._frame, self._twin, self._levers, np.zeros(1))

    @property
    def time_s(self) -> float:
        """Seconds since the start."""
        return float(self._twin.time_s[0])

    def context(self, seed: int = 0) -> NodeContext:
        """What a controller may know beforehand."""
        return NodeContext(
            zone_limit_bytes=self.scenario.zone_bytes,
            slot_names=tuple(s.name for s in self.scenario.slots),
            floors_bytes=tuple(s.floor_bytes for s in self.scenario.slots),
            slo_ms=self.scenario.slo_ms,
            tick_period_s=TICK_S,
            seed=seed,
        )

    def sample(self) -> Sample:
        """What the node reports now."""
        stopped = frozenset(p.pid - FIRST_PID for p in self._granted.stopped)
        return to_sample(self._frame, 0, self._sequence, self._twin, stopped)

    def step(self, granted: DesiredState) -> None:
        """Apply what the guard granted and let one tick pass."""
        self._granted = granted
        stopped = {p.pid - FIRST_PID for p in granted.stopped}
        paused = np.zeros((SLOTS, 1), dtype=bool)
        limit = np.full((SLOTS, 1), np.nan)
        for i in range(len(self.scenario.slots)):
            want = granted.slot(i)
            paused[i] = want.paused or i in stopped
            limit[i] = np.nan if want.limit_bytes is None else want.limit_bytes
        self._levers.apply(paused, limit)
        pages = np.where(np.isnan(limit), np.inf, limit / PAGE_BYTES)
        tuning = granted.tuning
        swappiness = NODE_SWAPPINESS if tuning.swappiness is None else float(tuning.swappiness)
        start, block = NODE_DIRTY_RATIOS
        if tuning.dirty_background_ratio is not None:
            start = tuning.dirty_background_ratio / 100.0
        if tuning.dirty_ratio is not None:
            block = tuning.dirty_ratio / 100.0
        if granted.terminate is not None:
            ended = np.zeros((SLOTS, 1), dtype=bool)
            ended[granted.terminate.pid - FIRST_PID] = True
            self._twin.end_slots(ended)
        began_s = self.time_s
        self._twin.tick(paused, pages, swappiness, (start, block))
        self._remember(began_s)
        self._levers.advance(held_bytes(self._twin))
        names = [p.name for p in PROFILES]
        index = names.index(tuning.name) if tuning.name in names else 0
        fill_frame(self._frame, self._twin, self._levers, np.array([float(index)]))
        self._sequence += 1

    def _remember(self, began_s: float) -> None:
        count = np.rint(self._twin.application.probe_weight[:, 0]).astype(np.int64)
        steps = len(count)
        start_s = np.repeat(began_s + np.arange(steps) * TICK_S / steps, count)
        at_s = start_s + self._rng.random(len(start_s)) * TICK_S / steps
        self._scheduled_s.append(np.sort(at_s))
        self._sojourn_s.append(np.repeat(self._twin.application.probe_ms[:, 0] * 1e-3, count))
        self._units.append(self._twin.counters.units[:, 0].copy())
        self._progress.append(self._twin.background.progress[:, 0].copy())

    def requests(self) -> Requests:
        """All requests so far; one that is not finished yet counts as not ok."""
        if not self._scheduled_s:
            return Requests.empty()
        scheduled_s = np.concatenate(self._scheduled_s)
        end_s = scheduled_s + np.concatenate(self._sojourn_s)
        return Requests(
            scheduled_s=scheduled_s,
            start_s=scheduled_s,
            end_s=np.minimum(end_s, self.time_s),
            ok=end_s <= self.time_s,
        )

    def units(self) -> Units:
        """Work units so far, one reading a tick and slot."""
        if not self._units:
            return Units.empty()
        count = len(self.scenario.slots)
        done = np.array(self._units)[:, :count]
        times_s = TICK_S * (1.0 + np.arange(len(done)))
        return Units(
            slot=np.repeat(np.arange(count, dtype=np.int32), len(done)),
            time_s=np.tile(times_s, count),
            units=done.T.ravel(),
        )
