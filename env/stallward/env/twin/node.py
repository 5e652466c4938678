"""One twin node with the interface of a real node: it returns samples and takes desired states.

Every controller can run on it, behind the same engine and guard as on a real node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from stallward.actuator.sensors.combined_groups import CombinedGroups
from stallward.agent.controller import NodeContext
from stallward.agent.desired import NORMAL_CPU_WEIGHT, PROFILES, SLOTS, DesiredState
from stallward.agent.observation.raw import NODE, RawFrame
from stallward.agent.sample import ApplicationSample, Sample
from stallward.env.recording.recording import Requests, Units
from stallward.env.twin.batch import TICK_S, TwinBatch, World
from stallward.env.twin.frame import FRAME, add_others, fill_frame, frame_at, raw_frames
from stallward.env.twin.inputs.exogenous import PAGE_BYTES, Exogenous
from stallward.env.twin.inputs.lacks import twin_lacks
from stallward.env.twin.inputs.parameters import TwinParameters
from stallward.env.twin.one_shot import Reclaims, newly_ended
from stallward.env.twin.physics import levers
from stallward.env.twin.physics.background import slots_in_use
from stallward.env.twin.physics.latency import Array
from stallward.env.twin.physics.others import other_at, others_in_use
from stallward.env.twin.physics.state import node_at
from stallward.env.twin.physics.working_set import update_working_set
from stallward.env.twin.sample import (
    FIRST_PID,
    latency_sample,
    protected_group,
    to_sample,
    with_applications,
)
from stallward.env.twin.settings import settings_of
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.jit import kernel, model


@kernel
def _apply(world: World, paused: Array, limit_bytes: Array) -> None:
    """Set the levers of the first node's slots; both arrays are ``(SLOTS,)``."""
    node = node_at(world.state, 0)
    for i in range(SLOTS):
        levers.apply(node, paused[i], limit_bytes[i], i)


@kernel
def _read(world: World, frames: Array, ring: levers.Ring, tick: int) -> None:
    """After a tick: update the history of the first node's levers and fill its frame."""
    node = node_at(world.state, 0)
    for i in range(SLOTS):
        levers.advance(node, ring, levers.held_bytes(node, i), 0, tick, i)
    node.seen = 1.0
    update_working_set(node, tick + 1)
    for a in range(1, 1 + others_in_use(world, 0)):
        update_working_set(other_at(world, 0, a), tick + 1)
    _fill(world, frames)


@kernel
def _fill_first(world: World, frames: Array) -> None:
    """Fill the frame of the first node before the first tick."""
    _fill(world, frames)


@model
def _fill(world: World, frames: Array) -> None:
    """Fill the frame of the first node, and behind it one for each of several applications."""
    node, frame, others = node_at(world.state, 0), frame_at(frames, 0), others_in_use(world, 0)
    fill_frame(node, frame, slots_in_use(node))
    add_others(world, node, frame, 0, others)
    if others > 0:
        for a in range(1 + others):
            fill_frame(other_at(world, 0, a), frame_at(frames, (1 + a) * WIDTH), 0)


_SOME: Final = NODE["zone_psi_memory_some_us"]
_STALL_COLUMNS: Final = (
    _SOME,
    NODE["zone_psi_memory_full_us"],
    NODE["zone_psi_io_some_us"],
)
"""The stall totals that the sample reports in bursts."""
_SHARE_TICKS: Final = 5
"""How often the share of inactive file pages is drawn. On real nodes it is hardly correlated with
the share half a second before."""


class TwinNode:
    """A simulated node whose samples look like those of a real one.

    Args:
        scenario: The exogenous description of the node.
        parameters: One draw of the fitted twin.
        others: Those of each further application, in order; by default they are the same.
        seed: Everything random follows from it.
        memory_low: Whether the node has memory.low. The nodes that twins are fitted to have
            cgroup v1 memory controllers, which do not.

    Attributes:
        time_s: Seconds since the start.
    """

    def __init__(
        self,
        scenario: Exogenous,
        parameters: TwinParameters,
        *,
        others: Sequence[TwinParameters] = (),
        seed: int,
        memory_low: bool = False,
    ) -> None:
        self.scenario = scenario
        self._memory_low = memory_low
        self._twin = TwinBatch([scenario], 1, seed=seed)
        self._twin.reset(
            np.ones(1, dtype=bool),
            np.zeros(1, dtype=np.int64),
            self._twin.parameters_of_each([parameters], [[one] for one in others]),
        )
        self._nodes = self._twin.nodes
        self._applications = self._twin.applications[: 1 + len(scenario.others)]
        self._combined = CombinedGroups("applications")
        self._frames = FRAME.empty((1 + len(self._twin.applications)) * WIDTH)
        self._ring = levers.make_ring(1)
        self._granted = DesiredState()
        self._sequence = 0
        self._rng = np.random.default_rng(seed + 1)
        self._report_rng = np.random.default_rng(seed + 2)
        self._stall_us = 1e6 * parameters.read_latency_s
        self._reported_us = dict.fromkeys(_STALL_COLUMNS, 0.0)
        self._next_report_us = 0.0
        self._inactive_share = float(np.median(scenario.inactive_file_shares))
        self._ended: set[int] = set()
        self._reclaims = Reclaims(len(scenario.slots))
        self._idle_s = 0.0
        self._scheduled_s: list[list[Array]] = [[] for _ in self._applications]
        self._sojourn_s: list[list[Array]] = [[] for _ in self._applications]
        self._units: list[Array] = []
        self._progress: list[Array] = []
        _fill_first(self._twin.world, self._frames)
        self._reported = self.frame()
        self._joint: Sample | None = None

    @property
    def time_s(self) -> float:
        """Seconds since the start."""
        return float(self._nodes.time_s[0])

    def context(self, seed: int = 0) -> NodeContext:
        """Return the context that controllers are made with."""
        return NodeContext(
            zone_limit_bytes=self.scenario.zone_bytes,
            slot_names=tuple(s.name for s in self.scenario.slots),
            floors_bytes=tuple(s.floor_bytes for s in self.scenario.slots),
            slo_ms=self.scenario.slo_ms,
            tick_period_s=TICK_S,
            cpus=self.scenario.cores,
            seed=seed,
            lacks=twin_lacks(self.scenario.swap_bytes),
        )

    def sample(self) -> Sample:
        """Return the node's sample now."""
        stopped = frozenset(p.pid - FIRST_PID for p in self._granted.stopped)
        alive = frozenset(np.flatnonzero(self._nodes.has_program[:, 0] > 0).tolist())
        sample = to_sample(
            self._reported,
            self._sequence,
            self.scenario,
            self._inactive_share,
            alive,
            stopped,
            int(self._nodes.refault_anon_pages[0]),
        )
        cpu_time_us = int(1e6 * self.scenario.cores * self.time_s)
        own_us = int(self._nodes.cpu_us[0, 0])
        sample = replace(
            sample,
            node=replace(
                sample.node, cpu_time_us=cpu_time_us, cpu_idle_us=int(1e6 * self._idle_s)
            ),
            protected=replace(sample.protected, cpu_usage_us=own_us),
            slots=tuple(
                replace(group, cpu_user_us=int(user_us))
                for group, user_us in zip(sample.slots, self._nodes.user_us[:, 0], strict=False)
            ),
        )
        if not self.scenario.others:
            return sample
        if self._joint is None:  # what grew since the last tick is counted once
            each = tuple(map(self._application, range(len(self._applications))))
            self._joint = with_applications(sample, each, self._combined, self.scenario.slo_ms)
        return self._joint

    def _application(self, number: int) -> ApplicationSample:
        """The sample of one of several applications."""
        scenario, own = self.scenario, self._applications[number]
        names = (scenario.protected_name, *(other.name for other in scenario.others))
        targets_ms = (scenario.slo_ms, *(other.slo_ms for other in scenario.others))
        frame = raw_frames(self._frames, np.full(1, (1 + number) * WIDTH))[0]
        group = protected_group(frame, int(own.refault_anon_pages[0]))
        return ApplicationSample(
            name=names[number],
            slo_ms=targets_ms[number],
            group=replace(group, name=names[number], cpu_usage_us=int(own.cpu_us[0, 0])),
            latency=latency_sample(frame),
        )

    def frame(self) -> RawFrame:
        """Return the raw columns of the node now, with exact stall totals."""
        return raw_frames(self._frames, np.zeros(1, dtype=np.int64))[0]

    def step(self, granted: DesiredState) -> None:
        """Apply the desired state that the guard granted, and let one tick pass."""
        read_back = granted.protected_willneed and not self._granted.protected_willneed
        ended = newly_ended(granted, self._granted, FIRST_PID)
        self._granted = granted
        stopped = {p.pid - FIRST_PID for p in granted.stopped}
        paused, limit = np.zeros(SLOTS), np.full(SLOTS, np.nan)
        weight, cores = np.full(SLOTS, float(NORMAL_CPU_WEIGHT)), np.full(SLOTS, np.inf)
        for i in range(len(self.scenario.slots)):
            want = granted.slot(i)
            paused[i] = want.paused or i in stopped
            limit[i] = np.nan if want.limit_bytes is None else want.limit_bytes
            weight[i] = want.cpu_weight or NORMAL_CPU_WEIGHT
            cores[i] = np.inf if want.cpu_max_cores is None else want.cpu_max_cores
        _apply(self._twin.world, paused, limit)
        self._nodes.cpu_weight = weight[:, None]
        self._nodes.cpu_max_cores = cores[:, None]
        self._reclaims.hold(granted, self.frame(), self._nodes)
        for slot in ended:
            self._end(slot)
        self._tune(granted, read_back)
        began_s, used_us = self.time_s, self._used_us()
        self._twin.advance()
        used_s = 1e-6 * (self._used_us() - used_us)
        self._idle_s += max(self.scenario.cores * TICK_S - used_s, 0.0)
        self._draw_inactive_share()
        self._restart_programs()
        self._record(began_s)
        _read(self._twin.world, self._frames, self._ring, self._twin.ticks - 1)
        self._reported = self._in_bursts(self.frame())
        self._sequence += 1
        self._joint = None

    def _used_us(self) -> float:
        """The CPU time of all groups since the start."""
        of_others = (float(own.cpu_us[0, 0]) for own in self._applications[1:])
        return sum(of_others, float(self._nodes.cpu_us.sum()))

    def _tune(self, granted: DesiredState, read_back: bool) -> None:
        """Set the kernel settings and the protected group's own levers.

        Args:
            granted: The desired state that the guard granted.
            read_back: Whether the protected group's swapped pages are asked for now.
        """
        nodes, settings = self._nodes, settings_of(granted.tuning)
        names = [p.name for p in PROFILES]
        name = granted.tuning.name
        nodes.profile = float(names.index(name) if name in names else 0)
        nodes.swappiness = settings.swappiness
        nodes.dirty_start, nodes.dirty_block = settings.dirty_start, settings.dirty_block
        for number, own in enumerate(self._applications):
            part = granted.application(number)
            tuning = replace(granted.tuning, protected_swappiness=part.swappiness)
            own.protected_swappiness = settings_of(tuning).protected_swappiness
            low_bytes = part.low_bytes if self._memory_low else None
            own.protected_low_pages = (low_bytes or 0) / PAGE_BYTES
        if read_back:
            self._twin.read_back(np.ones(1, dtype=bool))

    def _end(self, slot: int) -> None:
        """Terminate the program of a slot; it begins again if it restarts."""
        ended = np.zeros((SLOTS, 1), dtype=bool)
        ended[slot] = True
        restarts = self.scenario.slots[slot].restarts
        self._twin.end_slots(ended, for_good=not restarts)
        if not restarts:
            self._ended.add(slot)

    def _restart_programs(self) -> None:
        """Let terminated programs run again from the next start that the scenario has for them."""
        if not self._ended:
            return
        time_s = self.time_s + float(self._nodes.phase_s[0])
        present = self._nodes.has_program.copy()
        for slot in tuple(self._ended):
            running = self.scenario.slots[slot].running
            if not running[int(time_s) % len(running)]:
                present[slot] = 1.0  # start_and_stop starts it
                self._ended.discard(slot)
        self._nodes.has_program = present

    def _in_bursts(self, frame: RawFrame) -> RawFrame:
        """Report stall totals in bursts of about one read each, as a real node has them.

        The stalls of the twin grow evenly, so a rule that asks whether there was any stall would
        see one in every tick.
        """
        node = frame.node
        if node[_SOME] >= self._next_report_us:
            self._reported_us = {column: node[column] for column in _STALL_COLUMNS}
            self._next_report_us = node[_SOME] + self._report_rng.exponential(self._stall_us)
        for column, total_us in self._reported_us.items():
            node[column] = total_us
        return frame

    def _draw_inactive_share(self) -> None:
        """Draw a new share of inactive file pages every few ticks: it changes by itself."""
        if self._twin.ticks % _SHARE_TICKS == 0:
            shares = self.scenario.inactive_file_shares
            at = self._report_rng.random() * (len(shares) - 1)
            self._inactive_share = float(np.interp(at, np.arange(len(shares)), shares))

    def _record(self, began_s: float) -> None:
        """Record the requests and the work of a tick."""
        for number, own in enumerate(self._applications):
            count = np.rint(own.probe_weight[:, 0]).astype(np.int64)
            steps = len(count)
            start_s = np.repeat(began_s + np.arange(steps) * TICK_S / steps, count)
            at_s = start_s + self._rng.random(len(start_s)) * TICK_S / steps
            self._scheduled_s[number].append(np.sort(at_s))
            self._sojourn_s[number].append(np.repeat(own.probe_ms[:, 0] * 1e-3, count))
        self._units.append(self._nodes.units[:, 0])
        self._progress.append(self._nodes.progress[:, 0])

    def requests(self, application: int = 0) -> Requests:
        """Return all requests to an application so far; those without an answer are not ok."""
        if not self._scheduled_s[application]:
            return Requests.empty()
        scheduled_s = np.concatenate(self._scheduled_s[application])
        end_s = scheduled_s + np.concatenate(self._sojourn_s[application])
        return Requests(
            scheduled_s=scheduled_s,
            start_s=scheduled_s,
            end_s=np.minimum(end_s, self.time_s),
            ok=end_s <= self.time_s,
        )

    def units(self) -> Units:
        """Return the work so far, with one reading for each tick and slot."""
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
