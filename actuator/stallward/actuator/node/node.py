"""The node as configured: it reads samples by its sensors and applies states by its levers."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.guard import slots_with_stopped
from stallward.actuator.guard.slot_tracker import SHARE_WINDOW_S, SlotFacts, SlotTracker
from stallward.actuator.guard.workable import growth_until_next_tick, least_hard_bytes
from stallward.actuator.ipc.shared_memory import PauseMemory
from stallward.actuator.kernel.scheduling import read_online_cpus
from stallward.actuator.latency.source import open_source
from stallward.actuator.levers.base.originals import ReleaseJournal, SendJournal, TouchJournal
from stallward.actuator.levers.base.plugin import LeverEntry
from stallward.actuator.levers.lever_set import LeverOptions, LeverSet
from stallward.actuator.node.find_targets import find_targets
from stallward.actuator.node.lacking import find_lacks
from stallward.actuator.node.stall_watch import StallWatches, stall_file
from stallward.actuator.parts import Part, load_part
from stallward.actuator.record.lever_result import LeverResult
from stallward.actuator.sensors.files.meminfo import machine_min_bytes
from stallward.actuator.sensors.missing import Absence, Why, absences, broken, is_latency
from stallward.actuator.sensors.readers import ReadApplication
from stallward.actuator.sensors.sampler import Sampler
from stallward.agent.controller import Controller, Need, NodeContext, PolicyController
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.sample import Sample, SlotState

if TYPE_CHECKING:
    from stallward.actuator.node.pod_places import PodPlaces
    from stallward.actuator.node.shared_levers import SharedLevers
    from stallward.actuator.sensors.page_cache.readings import PageCacheSignal
    from stallward.actuator.work.channel import WorkChannel

MakeController = Callable[[str], Controller]
"""Makes a controller of its specification; raises ``ControllerError`` if there is none."""


def make_engine(
    config: DaemonConfig,
    node: Node,
    controller: Controller,
    make: MakeController,
    own_pids: frozenset[int],
) -> Engine:
    """Make the engine; a policy is watched by the default controller until it is switched on.

    Args:
        config: The configuration.
        node: The node.
        controller: The controller that ``control.controller`` names.
        make: Makes the default controller.
        own_pids: The processes of the daemon.

    Raises:
        ControllerError: If a controller needs what the node lacks.
    """
    default = config.control.fallback_controller
    configured = make(default) if isinstance(controller, PolicyController) else controller
    return Engine(settings=node.settings(own_pids), configured=configured, default=make(default))


class Node:
    """Reads samples of a node and applies granted states to it.

    Args:
        config: The daemon's configuration.
        send_journal: Called with journal entries before the first change that they undo; an error
            that it raises prevents the change.
        release_journal: Called with entries that need not be undone any more.
        daemon_start_s: When the daemon was started (CLOCK_MONOTONIC); now by default.
        latencies: For each application the socket from which its latencies come, where another
            process gathers them.
        work: The socket from which the work of slots comes, where another process reads it.
        touch_journal: Marks entries that were sent as changed, or as restored.
        pods: The socket from which comes which pods have which place, if any target is a pod.
        plugins: The levers of other packages.

    Raises:
        NodeError: If a group is missing, the node lacks something, or a background group holds
            the daemon itself.
    """

    def __init__(
        self,
        config: DaemonConfig,
        send_journal: SendJournal,
        release_journal: ReleaseJournal | None = None,
        daemon_start_s: float | None = None,
        latencies: Sequence[socket.socket | None] = (),
        work: socket.socket | None = None,
        touch_journal: TouchJournal | None = None,
        pods: socket.socket | None = None,
        plugins: tuple[LeverEntry, ...] = (),
    ) -> None:
        self._config, paths = config, config.node.paths
        targets = find_targets(config, daemon_start_s)
        self.hierarchy, self._forest = targets.hierarchy, targets.forest
        zone, slots = targets.zone, targets.slots
        self._page_cache: PageCacheSignal | None = None
        if config.node.page_cache != "off":
            self._page_cache = load_part(Part.PAGE_CACHE)(
                config.node.page_cache,
                hierarchy=self.hierarchy,
                zone=zone,
                protected=targets.applications,
                slots=slots,
                sys=paths.sys,
            )
        sockets = latencies or (None,) * len(config.latencies)
        self.latencies = tuple(map(open_source, config.latencies, sockets))
        """The source of latencies of each application."""
        self._work: WorkChannel | None = None
        if config.read_work:
            self._work = load_part(Part.WORK)([slot.work for slot in config.background], work)
        self.sampler = Sampler(
            paths=paths,
            hierarchy=self.hierarchy,
            zone=zone,
            applications=[
                ReadApplication(target=target, latency_source=source, name=one.name, slo_ms=slo_ms)
                for target, source, one, slo_ms in zip(
                    targets.applications,
                    self.latencies,
                    config.applications,
                    config.targets_ms,
                    strict=True,
                )
            ],
            slots=slots,
            forest=targets.forest,
            slo_ms=config.control.slo_ms,
            shared=config.shared_slots,
        )
        self.tracker = SlotTracker(len(slots))
        self._pauses: PauseMemory | None = None
        first = self._last = self.sampler.read(0, self.tracker.states(0.0))
        limit_bytes = first.zone.memory_limit_bytes
        self.zone_limit_bytes = limit_bytes or first.node.memory_total_bytes or 0
        self._watermark_min_bytes = machine_min_bytes(paths.proc) if limit_bytes is None else 0
        self.levers = LeverSet(
            paths=paths,
            hierarchy=self.hierarchy,
            zone=zone,
            applications=targets.applications,
            slots=slots,
            zone_limit_bytes=limit_bytes,
            send_journal=send_journal,
            release_journal=release_journal,
            touch_journal=touch_journal,
            exempt=config.exempt_pids,
            options=LeverOptions(
                dry_run=config.control.dry_run,
                aside_s=config.control.foreign_wait_s,
                hard_protection=tuple(one.hard_protection for one in config.applications),
                plugins=plugins,
            ),
        )
        self._profile = "default"
        self._watch: StallWatches | None = None
        self._growth_bytes: int | None = None
        if self.hierarchy.kind != "v2":
            self._growth_bytes = growth_until_next_tick(
                os.cpu_count() or 1, config.control.tick_period_s
            )
        self._slots: LeverSet | SharedLevers = self.levers
        self._places: PodPlaces | None = None
        if config.follows_pods:
            places: PodPlaces = load_part(Part.PODS)(
                config,
                pods,
                self.hierarchy,
                self.sampler,
                self.levers,
                growth_bytes=self._growth_bytes,
            )
            self._places, self._slots = places, places.slots

    def settings(self, protected_pids: frozenset[int]) -> EngineSettings:
        """Return the settings of the engine for this node."""
        control = self._config.control
        online = read_online_cpus(self._config.node.paths)
        context = NodeContext(
            zone_limit_bytes=self.zone_limit_bytes,
            slot_names=tuple(slot.name for slot in self._config.background),
            floors_bytes=tuple(slot.floor_bytes for slot in self._config.background),
            slo_ms=control.slo_ms,
            demand_bytes=sum(one.demand_bytes for one in self._config.applications),
            keep_available_bytes=self._config.node.keep_available_bytes,
            watermark_min_bytes=self._watermark_min_bytes,
            tick_period_s=control.tick_period_s,
            cpus=float(len(online or ())),
            seed=control.seed,
            lacks=self.lacks(self._config.guard),
        )
        return EngineSettings(
            context=context,
            budgets=self._config.guard,
            protected_pids=protected_pids | self._config.exempt_pids,
            late_s=control.tick_period_s / 2,
            online_cpus=online,
            aside_s=control.foreign_wait_s,
            growth_bytes=self._growth_bytes,
        )

    def reconfigure(self, config: DaemonConfig) -> None:
        """Use the targets and the bounds of ``config`` from now on."""
        self.sampler.retarget(config.control.slo_ms, config.targets_ms)
        if self._places is not None:
            self._places.slots.reconfigure(config.guard)

    def lacks(self, budgets: Budgets) -> dict[Need, str]:
        """Return what this node lacks, with these budgets, of what controllers may need."""
        return find_lacks(self._config, budgets, self.levers, self._last, self.absences())

    def remember_pauses(self, memory: PauseMemory, now_s: float, *, after_restart: bool) -> None:
        """Keep the slots' pauses in ``memory`` from now on.

        Args:
            memory: Memory that outlives this process.
            now_s: CLOCK_MONOTONIC.
            after_restart: Whether an earlier loop may have paused a slot lately. Its pauses are in
                ``memory``; where they are not, the longest that the budgets allow are assumed.
        """
        if after_restart:
            count = len(self._config.background)
            longest_s = self._config.guard.max_pause_share * SHARE_WINDOW_S
            paused = [self._slots.slot_paused(i) for i in range(count)]
            known = tuple(memory.load())
            if self._places is not None:
                known = self._places.known_pauses(known)
            self.tracker = SlotTracker.after_restart(now_s, [longest_s] * count, paused, known)
        self._pauses = memory
        memory.keep_only(())
        self._note_pauses()

    def _note_pauses(self) -> None:
        if self._pauses is not None:
            self._pauses.note(self.tracker)

    def read(self, sequence: int, now_s: float) -> Sample:
        """Read the sample of one tick.

        Raises:
            SensorError: If an essential signal is there but cannot be read or understood.
        """
        places, page_cache, sampler = self._places, self._page_cache, self.sampler
        moved = places is not None and places.step(now_s, self.tracker)
        if moved and self._watch is not None:
            self._watch.move(self._stall_files())
        self.tracker.note_waits(self._slots.memory_waits())
        if page_cache is not None:
            page_cache.step(now_s, sampler.node, (sampler.zone, *sampler.groups))
        states = self._with_pauses(self.tracker.states(now_s))
        sample = sampler.read(
            sequence,
            states if places is None else places.with_budgets(states),
            self._profile,
            levers=self.levers.states(),
            work=() if self._work is None else self._work.read(time.monotonic()),
        )
        sample = self._with_least_limits(sample)
        self._last = sample if page_cache is None else page_cache.fill_processes(sample)
        return self._last

    def _with_pauses(self, states: Sequence[SlotState]) -> tuple[SlotState, ...]:
        """Say how the configuration lets each slot be paused."""
        return tuple(
            state
            if slot.max_pause_s is None
            else replace(state, longest_pause_s=slot.max_pause_s, shortest_run_s=0.0)
            for state, slot in zip(states, self._config.background, strict=True)
        )

    def _with_least_limits(self, sample: Sample) -> Sample:
        """Say how far a running slot can be limited, where that is bounded."""
        growth_bytes = self._growth_bytes
        if growth_bytes is None:
            return sample
        states = tuple(
            replace(
                state,
                least_limit_bytes=least_hard_bytes(
                    group, sample.node.swap_free_bytes, growth_bytes
                ),
            )
            for group, state in zip(sample.slots, sample.slot_states, strict=True)
        )
        return replace(sample, slot_states=states)

    def missing(self) -> tuple[str, ...]:
        """Return the signals and levers that this node does not have, and why."""
        return (*self.missing_signals(), *self.levers.missing(), *self._remarks)

    def problems(self) -> tuple[str, ...]:
        """Return what somebody should look at: it is wrong now, and no lack of the node."""
        absent = self.absences()
        latency = (str(a) for a in absent if is_latency(a.signal) and a.why is Why.UNREADABLE)
        gone = (one for one in absent if one.why is Why.GROUP_GONE)
        groups = dict.fromkeys(
            f"{one.signal.partition('.')[0]}: {one.why.value}"
            + (f" ({one.detail})" if one.detail else "")
            for one in gone
        )
        pods = () if self._places is None else self._places.problems
        return (*latency, *groups, *self.process_faults, *pods)

    def passing_faults(self) -> tuple[str, ...]:
        """Return the faults that come and go, without a look at every signal."""
        latencies = ("" if source is None else source.fault for source in self.latencies)
        return (*latencies, *self.sampler.passing_faults, *self._remarks)

    @property
    def _remarks(self) -> tuple[str, ...]:
        places = self._places
        return () if places is None else (*places.problems, *places.empty)

    def pods(self, slot: int) -> tuple[str, ...]:
        """Return the namespaces and names of the pods that a slot has now."""
        return () if self._places is None else self._places.pods(slot)

    def work_faults(self) -> tuple[str, ...]:
        """Return for each slot why its work is not known now; empty where it is."""
        return ("",) * len(self._config.background) if self._work is None else self._work.faults()

    @property
    def process_faults(self) -> tuple[str, ...]:
        """Why processes that the configuration names are not followed."""
        return () if self._forest is None else self._forest.faults

    def missing_signals(self) -> tuple[str, ...]:
        """Return the signals that this node does not have, and why."""
        return (*broken(self.absences(), self.sampler.faults), *self.sampler.absent)

    def absences(self) -> tuple[Absence, ...]:
        """Return every signal that the last sample lacked, also those that none has, and why."""
        page_cache = self._page_cache
        why, detail = Why.OFF, 'switched off (node.page_cache = "off")'
        if page_cache is not None:
            why, detail = Why.UNREADABLE, page_cache.absent or "not read"
        reason = (why, f"page cache by eBPF: {detail}")
        known = dict.fromkeys(("page_cache_hits", "page_cache_misses"), reason)
        return absences(self.sampler, self._last, known)

    def apply(
        self, granted: DesiredState, sample: Sample, now_s: float
    ) -> tuple[LeverResult, ...]:
        """Apply a granted state, and keep track of what the slots do from now on."""
        # A dry run pauses and limits nothing, whatever is granted.
        in_force = RELEASED if self.levers.dry_run else granted
        stopped = slots_with_stopped(in_force, sample)
        pausing = [i for i in range(len(sample.slots)) if in_force.slot(i).paused or i in stopped]
        self.tracker.begin(now_s, pausing)
        self._note_pauses()  # before the pauses, which then count even if this process dies here
        if self._pauses is not None:
            self._pauses.keep(now_s, pausing, [s.longest_pause_s for s in sample.slot_states])
        places = self._places
        results = self.levers.apply(
            granted if places is None else places.slots.for_places(granted, sample)
        )
        facts = [
            SlotFacts(
                paused=in_force.slot(i).paused or self._slots.slot_paused(i) or i in stopped,
                limit_bytes=self._slots.slot_limit_bytes(i),
                usage_bytes=group.memory_usage_bytes,
                swap_bytes=group.swap_bytes,
            )
            for i, group in enumerate(sample.slots)
        ]
        self.tracker.update(now_s, facts, time.monotonic())
        self._note_pauses()
        self._keep_only(pausing)
        self._profile = in_force.tuning.name
        return results

    def stall_watch(self) -> StallWatches:
        """Make a watch for stalls of the applications; of the node, if one has no PSI."""
        self._watch = StallWatches(self._stall_files())
        return self._watch

    def _stall_files(self) -> tuple[Path, ...]:
        proc = self._config.node.paths.proc
        files = (stall_file(target, proc) for target in self.levers.applications)
        return tuple(dict.fromkeys(path for path in files if path is not None))

    def anything_held(self) -> bool:
        """Return whether any setting may not have its original value."""
        return self.levers.anything_held()

    def background_runs(self) -> bool:
        """Return whether some slot is not paused, so that a controller can act on a stall."""
        return not all(state.paused for state in self._last.slot_states)

    def release(self, now_s: float) -> tuple[LeverResult, ...]:
        """Release everything, as at a tick without a readable sample."""
        results = self.levers.apply(RELEASED)
        facts = [
            SlotFacts(
                paused=self._slots.slot_paused(i), limit_bytes=self._slots.slot_limit_bytes(i)
            )
            for i in range(len(self._config.background))
        ]
        self.tracker.update(now_s, facts, time.monotonic())
        self._note_pauses()
        self._keep_only(())
        self._profile = RELEASED.tuning.name
        return results

    def _keep_only(self, pausing: Collection[int]) -> None:
        """Note which slots the loop still keeps paused.

        A pause that was to end has ended only when its lever says so. Until then the guardian must
        count it, since it may be the only one that can still end it.
        """
        if self._pauses is not None:
            held = map(self._slots.slot_pause_held, range(len(self._config.background)))
            self._pauses.keep_only([i for i, h in enumerate(held) if h or i in pausing])

    def close(self) -> bool:
        """Restore everything and close the files; return whether everything is restored."""
        self.levers.restore()
        for part in (self._page_cache, self._work, self._places, self._forest):
            if part is not None:
                part.close()
        self.sampler.close()
        restored = not self.levers.held()
        self.levers.close()
        return restored
