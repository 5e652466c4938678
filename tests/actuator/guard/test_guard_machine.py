"""No sequence of wishes, samples, faults and clock jumps breaks what the guard guarantees.

Engine, guard and tracker are the real ones; only the kernel is a model
(:mod:`around_the_guard`), and time is the model's.

``STALLWARD_MACHINE_EXAMPLES`` (and ``_STEPS``) make it longer than it is in CI.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from around_the_guard import (
    CALM_S,
    DAEMON_PID,
    DEFAULT_WISH,
    END_ALL,
    FLOOR,
    NAMES,
    PAUSE_ALL,
    PERIOD_S,
    PROTECTED_PID,
    SLOTS,
    SQUEEZE_ALL,
    SQUEEZE_RUNNING,
    STOP_ALL,
    ZONE,
    Died,
    Kernel,
    MortalMemory,
    Run,
    Slot,
    Wishing,
    WishingPolicy,
    leases,
    squeezes,
    tick_runs,
    wishes,
)
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stallward.actuator.engine.engine import LATE_TICKS, LATE_WINDOW_TICKS, Engine
from stallward.actuator.engine.interface import EngineSettings, TickOutcome
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.guard import GuardMemory, slots_with_stopped
from stallward.actuator.guard.slot_tracker import SHARE_WINDOW_S, SlotFacts, SlotTracker
from stallward.actuator.ipc.shared_memory import SLOT_BYTES, PauseMemory
from stallward.actuator.record import wire
from stallward.actuator.record.reasons import FaultKind
from stallward.actuator.record.tick_record import Circumstances, Mode
from stallward.agent.controller import NodeContext
from stallward.agent.desired import (
    MIB,
    RELEASED,
    DesiredState,
    ProcessRef,
    SlotDesire,
    limit_level,
)
from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    LeverState,
    NodeSample,
    ProcessSample,
    PsiTotals,
    Sample,
)

EPSILON_S = 1e-6
ESSENTIAL = {"protected", "zone", "latency"}


class GuardedNode(RuleBasedStateMachine):
    """Ticks of an engine on a kernel, at any time, with any sample and any desired state."""

    @initialize(
        budgets=st.builds(
            Budgets,
            max_pause_s=st.sampled_from([0.7, 2.0, 5.0]),
            max_pause_share=st.sampled_from([0.05, 0.3, 0.8, 1.0]),
            min_run_s=st.sampled_from([0.0, 0.3, 0.5]),
            late_allowance_s=st.sampled_from([0.0, 0.1]),
            return_after_ticks=st.sampled_from([0, 2, 5]),
            allow_terminate=st.booleans(),
        ),
        usage_bytes=st.sampled_from([300 * MIB, 300 * MIB, 0]),
        pod=st.sampled_from([(None, None), (0.0, 0.5), (0.5, 0.5), (1.5, 0.7)]),
    )
    def begin(
        self, budgets: Budgets, usage_bytes: int, pod: tuple[float | None, float | None]
    ) -> None:
        self.budgets = budgets
        self.pods = (pod, (None, None))
        """The longest pause and the shortest run of the pod in each slot."""
        self.kernel = Kernel()
        for slot in self.kernel.slots:
            slot.usage_bytes = usage_bytes
        self.context = NodeContext(
            zone_limit_bytes=ZONE, slot_names=NAMES, floors_bytes=(FLOOR,) * SLOTS
        )
        self.rule, self.policy = Wishing("rule"), WishingPolicy("policy")
        self.default = Wishing("default", DEFAULT_WISH)
        self.mode = Mode.OFF
        self.lease: DesiredState | None = None
        self.tracker = SlotTracker(SLOTS)
        self.memory = MortalMemory(SLOTS * SLOT_BYTES)
        self.pauses = PauseMemory(self.memory, SLOTS)
        self.pauses.note(self.tracker)
        self.engine = self.new_engine()
        self.absent: frozenset[str] = frozenset()
        self.sequence = 0
        self.due_s = self.kernel.now_s
        """The latest time at which the next tick is due, as given to the last tick."""
        self.blind_ticks = 0
        self.moves_early = False
        self.dies = ""
        """The point of the next tick at which the loop is killed."""
        self.sampled_s = 0.0
        """The latest time of a sample."""
        self.renewed: set[int] = set()
        """Slots whose group or limit is another one than at the last tick."""
        self.stall_us = 0
        for _ in range(3):
            self.tick(PERIOD_S, 0.0, 0.0)

    def new_engine(self) -> Engine:
        self.steps: dict[int, tuple[float, int]] = {}
        self.seen: set[str] = set()
        self.checked_s = -math.inf
        """The time of the last sample that differed from the one before."""
        self.who = ""
        self.good_ticks = 0
        self.late_ticks: list[bool] = []
        settings = EngineSettings(
            context=self.context,
            budgets=self.budgets,
            protected_pids=frozenset({DAEMON_PID, PROTECTED_PID}),
            online_cpus=frozenset(range(4)),
        )
        engine = Engine(settings=settings, configured=self.rule, default=self.default)
        engine.install(self.policy)
        engine.set_mode(self.mode)
        return engine

    # -------------------------------------------------------------- what happens

    @rule(wish=wishes, of=st.sampled_from(["rule", "policy", "both"]))
    def wish(self, wish: Any, of: str) -> None:
        for controller in (self.rule, self.policy):
            if of in {controller.name, "both"}:
                controller.wish = wish

    @rule(wish=wishes)
    def default_wishes(self, wish: Any) -> None:
        self.default.wish = wish

    @rule(mode=st.sampled_from(Mode))
    def switch(self, mode: Mode) -> None:
        self.mode = mode
        self.engine.set_mode(mode)

    @rule(lease=st.none() | leases)
    def lease_comes_or_lapses(self, lease: DesiredState | None) -> None:
        if lease is None or self.engine.invalid(lease) is None:  # else Apply is refused
            self.lease = lease

    @rule(
        score=st.sampled_from([0.0, 0.5, 0.6, math.nan, math.inf, None]),
        fails=st.sampled_from([(), ("policy",), ("rule", "policy"), ("default",)]),
    )
    def controllers_fail(self, score: float | None, fails: tuple[str, ...]) -> None:
        self.policy.score = self.rule.score = score
        for controller in (self.rule, self.policy, self.default):
            controller.fails = controller.name in fails

    @rule(absent=st.frozensets(st.sampled_from(
        ["protected", "zone", "usage", "processes", "latency", "limits", "node", "slots", "states"]
    )))  # fmt: skip
    def signals_go_or_come(self, absent: frozenset[str]) -> None:
        self.absent = absent

    @rule(refuses=st.sampled_from(["", "pause", "limit", "both"]), early=st.booleans())
    def levers_change(self, refuses: str, early: bool) -> None:
        self.moves_early = early
        self.kernel.refuses_pause = refuses in {"pause", "both"}
        self.kernel.refuses_limit = refuses in {"limit", "both"}

    @rule(
        lever=st.sampled_from(["pause:hog0", "limit:hog1", "vm.swappiness", "stop:100"]),
        back=st.booleans(),
        frozen=st.booleans(),
    )
    def another_program_moves(self, lever: str, back: bool, frozen: bool) -> None:
        slot = self.kernel.slots[0]
        if back:
            self.kernel.foreign.discard(lever)
            if lever == "pause:hog0":
                slot.theirs = False
        else:
            self.kernel.foreign.add(lever)
            if lever == "pause:hog0":
                slot.frozen, slot.theirs = False, frozen
            elif lever == "limit:hog1":
                self.kernel.slots[1].limit_bytes = None
                self.renewed.add(1)
        self.kernel.settle()

    @rule(
        index=st.integers(0, SLOTS - 1),
        exists=st.booleans(),
        usage_bytes=st.sampled_from([0, 4 * MIB, 60 * MIB, 300 * MIB, ZONE]),
        swap_bytes=st.sampled_from([0, 200 * MIB]),
    )
    def a_group_changes(self, index: int, exists: bool, usage_bytes: int, swap_bytes: int) -> None:
        slot = self.kernel.slots[index]
        if exists != slot.exists:
            slot.exists, slot.frozen, slot.stopped, slot.limit_bytes = exists, False, False, None
            slot.still_since_s = None
            slot.stills.clear()
            self.renewed.add(index)
        slot.usage_bytes, slot.swap_bytes = usage_bytes, swap_bytes
        self.kernel.settle()

    @rule(
        wish=st.sampled_from([PAUSE_ALL, STOP_ALL, SQUEEZE_ALL, SQUEEZE_RUNNING, END_ALL])
        | squeezes,
        run=tick_runs,
    )
    def everybody_wants_all(self, wish: DesiredState, run: Run) -> None:
        """Ticks without a fault, at which every controller wants as much as it may."""
        self.absent = frozenset()
        self.kernel.refuses_pause = self.kernel.refuses_limit = False
        self.policy.score = self.rule.score = 0.0
        self.lease = self.lease and wish
        for controller in (self.rule, self.policy, self.default):
            controller.wish, controller.fails = wish, False
        self.some_ticks(run)

    @rule(run=tick_runs)
    def ticks(self, run: Run) -> None:
        self.some_ticks(run)

    @rule(run=tick_runs)
    def more_ticks(self, run: Run) -> None:
        self.some_ticks(run)

    def some_ticks(self, run: Run) -> None:
        count, horizon_s, early, slow_s = run
        for _ in range(count):
            self.tick(horizon_s * early, slow_s, 0.0, horizon_s)

    @rule(
        late_s=st.sampled_from([0.05, 0.1, 0.3, 3.0, 70.0, 7200.0]),
        slow_s=st.sampled_from([0.0, 0.05, 1.0]),
    )
    def a_tick_comes_late(self, late_s: float, slow_s: float) -> None:
        self.tick(PERIOD_S, slow_s, late_s)

    @rule(late=st.booleans(), age_s=st.sampled_from([0.0, 0.6, math.nan]))
    def a_tick_takes_long(self, late: bool, age_s: float) -> None:
        self.tick(PERIOD_S, 0.0, 0.0, late=late, age_s=age_s)

    @rule(time=st.sampled_from([0.0, -1.0, -3600.0, math.nan, math.inf]))
    def a_clock_is_wrong(self, time: float) -> None:
        """A tick whose sample has a time that repeats, goes back or is no number."""
        last_s = self.kernel.now_s
        self.tick(PERIOD_S, 0.0, 0.0, sample_time_s=last_s + time)

    @rule()
    def a_tick_sees_nothing(self) -> None:
        """A tick without a sample, at which the loop releases everything."""
        self.wait(PERIOD_S, 0.0)
        before_s = self.kernel.now_s
        self.note_overrun()
        self.kernel.release()
        facts = [SlotFacts(paused=slot.theirs) for slot in self.kernel.slots]
        self.tracker.update(before_s, facts, self.kernel.now_s)
        self.pauses.note(self.tracker)
        self.blind_ticks += 1
        self.steps.clear()
        self.due_s = self.kernel.now_s + PERIOD_S

    @rule(
        gap_s=st.sampled_from([0.01, 0.1, 2.0, 30.0]),
        thawed=st.sampled_from([True, True, True, False]),
        times=st.sampled_from([1, 1, 4, 12]),
        run=st.sampled_from([(1, PERIOD_S), (5, PERIOD_S), (9, CALM_S)]),
        dies=st.sampled_from(["between ticks", "before the levers", "after the levers"]),
        cut=st.none() | st.sampled_from([0, 3, 40, 100]) | st.integers(0, 4 * SLOT_BYTES),
    )
    def the_loop_is_started_again(
        self,
        gap_s: float,
        thawed: bool,
        times: int,
        run: tuple[int, float],
        dies: str,
        cut: int | None,
    ) -> None:
        """The loop is killed anywhere in a tick; the guardian thaws, unless it is killed, too."""
        for _ in range(times):
            if dies != "between ticks":
                self.dies, self.memory.cut = dies, cut
                with contextlib.suppress(Died):
                    self.tick(PERIOD_S, 0.0, 0.0)
                self.dies, self.memory.cut = "", None
            self.start_again(gap_s, thawed=thawed)
            self.some_ticks((*run, 1.0, 0.0))

    def start_again(self, gap_s: float, *, thawed: bool) -> None:
        """A new loop starts after ``gap_s`` with the last one's record of its pauses."""
        if thawed:
            self.kernel.release()
        else:
            self.memory = MortalMemory(SLOTS * SLOT_BYTES)  # it went with the guardian
        self.wait(0.0, gap_s)
        for slot in self.kernel.slots:
            slot.limit_bytes = None
        self.pauses = PauseMemory(self.memory, SLOTS)
        self.tracker = SlotTracker.after_restart(
            self.kernel.now_s,
            [self.budgets.max_pause_share * SHARE_WINDOW_S] * SLOTS,
            [slot.still or slot.theirs for slot in self.kernel.slots],
            self.pauses.load(),
        )
        self.pauses.note(self.tracker)
        self.engine = self.new_engine()
        self.blind_ticks = 0
        self.tick(0.0, 0.0, 0.0)

    # -------------------------------------------------------------- one tick

    def wait(self, gap_s: float, late_s: float) -> None:
        """Let real time pass until a tick, which is due after ``gap_s``."""
        self.kernel.now_s += gap_s + late_s

    def note_overrun(self) -> None:
        """Note that the levers have moved now, and whether that is later than the guard allows."""
        late_s = self.kernel.now_s - self.due_s - self.budgets.late_allowance_s
        for slot in self.kernel.slots:
            if late_s > 0 and slot.still:
                slot.overruns.append((self.kernel.now_s, late_s))

    def tick(
        self,
        gap_s: float,
        slow_s: float,
        late_s: float,
        horizon_s: float = PERIOD_S,
        *,
        late: bool = False,
        age_s: float = 0.0,
        sample_time_s: float | None = None,
    ) -> None:
        """Wait, read, decide, apply and check; the next tick is due after ``horizon_s``."""
        self.wait(gap_s, late_s)
        kernel, engine = self.kernel, self.engine
        start_s = kernel.now_s
        sample = self.sample(start_s if sample_time_s is None else sample_time_s, start_s)
        if sample.time_s < math.inf:  # not a NaN either; the pace is that of the samples
            self.sampled_s = max(self.sampled_s, sample.time_s)
        before = engine.memory
        if self.blind_ticks:
            before = replace(before, limits=tuple(limit.learned for limit in before.limits))
        about = Circumstances(
            sample_age_s=age_s, horizon_s=horizon_s, blind_ticks=self.blind_ticks
        )
        outcome = engine.step(sample, remote=self.lease, late=late, circumstances=about)
        must_fall_back = (
            not self.checked_s < sample.time_s < math.inf
            or not age_s <= self.budgets.stale_s
            or bool(self.blind_ticks)
            or bool(self.absent & (self.seen | {"slots", "states"}))
            or (late and self.lease is None)
        )
        self.blind_ticks = 0
        fits = not self.absent & {"slots", "states"}
        if fits and self.checked_s < sample.time_s < math.inf:
            self.checked_s = sample.time_s
            self.seen |= ESSENTIAL - self.absent
        self.check_grant(outcome, sample, before)
        self.check_trust(outcome, must_fall_back=must_fall_back)
        # What takes its time may have moved at its beginning or at its end.
        pausing = slots_with_stopped(outcome.granted, sample)
        pausing |= {i for i in range(SLOTS) if outcome.granted.slot(i).paused}
        self.tracker.begin(start_s, pausing)
        self.pauses.note(self.tracker)
        if self.dies == "before the levers":
            raise Died
        kernel.now_s += slow_s if not self.moves_early else 0.0
        self.note_overrun()
        kernel.apply(outcome.granted, sample)
        self.due_s = start_s + horizon_s  # what was granted is granted until then, whoever dies
        kernel.now_s += slow_s if self.moves_early else 0.0
        if self.dies == "after the levers":
            raise Died
        self.renewed.clear()
        facts = kernel.facts(outcome.granted, sample)
        self.tracker.update(start_s, facts, kernel.now_s)
        self.pauses.note(self.tracker)
        self.sequence += 1

    def sample(self, time_s: float, now_s: float) -> Sample:
        absent = self.absent
        self.stall_us += 1000
        psi = PsiTotals(memory_some_us=self.stall_us)
        groups = []
        for name, slot in zip(NAMES, self.kernel.slots, strict=True):
            known = slot.exists and "usage" not in absent
            groups.append(
                GroupSample(name=name, memory_usage_bytes=slot.usage_bytes if known else None)
            )
        pids = [(100, 0), (101, 1), (PROTECTED_PID, -1)]
        listed = tuple(
            ProcessSample(pid=pid, start_time_ticks=7, slot=slot, oom_score=0, stopped=False)
            for pid, slot in pids
        )
        states = tuple(
            replace(state, longest_pause_s=pod[0], shortest_run_s=pod[1])
            for state, pod in zip(self.tracker.states(now_s), self.pods, strict=True)
        )
        return Sample(
            sequence=self.sequence,
            time_s=time_s,
            node=NodeSample(memory_total_bytes=None if "node" in absent else 10**10),
            zone=GroupSample(
                name="zone",
                psi=PsiTotals() if "zone" in absent else psi,
                memory_limit_bytes=None if "limits" in absent else ZONE,
            ),
            protected=GroupSample(name="app", psi=PsiTotals() if "protected" in absent else psi),
            slots=tuple(groups[1:] if "slots" in absent else groups),
            slot_states=states[:1] if "states" in absent else states,
            latency=None if "latency" in absent else LatencySample(),
            processes=None if "processes" in absent else listed,
            levers=tuple(
                LeverState(lever=lever, value="1", foreign=True)
                for lever in sorted(self.kernel.foreign)
            ),
        )

    # -------------------------------------------------------------- what must hold

    def check_grant(self, outcome: TickOutcome, sample: Sample, before: GuardMemory) -> None:
        guard, granted = self.engine.guard, outcome.granted
        assert guard.invalid(granted) is None, "what is granted can be expressed"
        wire.DESIRED_STATE.to_wire(granted).SerializeToString()
        wire.DECISION.to_wire(outcome.decision).SerializeToString()
        assert np.isfinite(outcome.observation).all()
        self.check_bounds(granted, sample)
        self.check_fallback(outcome)
        horizon_s = outcome.circumstances.horizon_s
        for memory in (before, self.engine.memory):
            again = guard.review(
                outcome.decision.decision.desired, sample, memory, horizon_s=horizon_s
            )
            assert again.granted == granted, "the same sample and wish get the same"

    def check_bounds(self, granted: DesiredState, sample: Sample) -> None:
        budgets = self.budgets
        for ref in (*granted.stopped, *filter(None, [granted.terminate])):
            assert ref in {ProcessRef(pid=p, start_time_ticks=7) for p in (100, 101)}
        assert granted.terminate is None or budgets.allow_terminate
        assert (granted.protected_low_bytes or 0) <= ZONE
        for lever in self.kernel.foreign:
            self.check_aside(lever, granted)
        assert len(granted.slots) == SLOTS
        files = granted.file_pages
        if files is not None:
            assert files.action != "pageout" or budgets.lift_budgets
            assert files.victim != "protected" or files.action == "willneed"
        for index, slot in enumerate(granted.slots):
            if not len(sample.slots) == len(sample.slot_states) == SLOTS:
                assert slot == SlotDesire()
                continue
            self.check_limits(index, slot, sample)
            assert slot.cpu_max_cores is None or slot.cpu_max_cores >= budgets.min_cpu_cores
            assert slot.nice is None or 0 <= slot.nice <= 19
            assert slot.io_max_bytes_per_s is None or (
                slot.io_max_bytes_per_s >= budgets.min_io_bytes_per_s
            )
            assert set(slot.cpus) <= set(range(4))
            assert slot.paused or slot.page_advice != "pageout"
            assert not slot.terminated or budgets.allow_terminate

    def check_limits(self, index: int, slot: SlotDesire, sample: Sample) -> None:
        kernel, state = self.kernel.slots[index], sample.slot_states[index]
        slot_is_new = index in self.renewed
        for limit in (slot.limit_bytes, slot.hard_limit_bytes, slot.reclaim_to_bytes):
            assert limit is None or limit >= FLOOR
        if slot.limit_bytes is not None and not slot.paused:
            # Unless the group is another one since the last tick, these are the same.
            in_force = state.limit_bytes if slot_is_new else kernel.limit_bytes
            level = limit_level(in_force, state.reference_bytes)
            assert limit_level(slot.limit_bytes, state.reference_bytes) <= level + 1
            if slot.limit_bytes < (kernel.limit_bytes or math.inf):
                self.check_pace(index, slot.limit_bytes)
        if state.reference_bytes is None:
            assert (slot.limit_bytes, slot.hard_limit_bytes) == (None, None)
        hard = slot.hard_limit_bytes
        if hard is not None:
            assert hard >= (slot.limit_bytes or 0)
        if hard is not None and not self.budgets.allow_terminate:
            assert slot.swap_max_bytes is None
            usage = sample.slots[index].memory_usage_bytes
            assert usage is not None
            assert slot.limit_bytes is not None
            assert hard >= max(usage, slot.limit_bytes) + self.budgets.hard_limit_margin_bytes

    def check_pace(self, index: int, limit_bytes: int) -> None:
        """Check that no second step follows within half a period of another."""
        if index in self.steps:
            at_s, to_bytes = self.steps[index]
            if self.sampled_s - at_s < PERIOD_S / 2 - EPSILON_S:
                assert limit_bytes >= to_bytes
        self.steps[index] = self.sampled_s, limit_bytes

    def check_aside(self, lever: str, granted: DesiredState) -> None:
        match lever:
            case "pause:hog0":
                assert not granted.slots[0].paused
            case "limit:hog1":
                assert granted.slots[1].limit_bytes is None
            case "vm.swappiness":
                assert granted.tuning.swappiness is None
            case _:
                assert all(ref.pid != 100 for ref in granted.stopped)

    def check_trust(self, outcome: TickOutcome, *, must_fall_back: bool) -> None:
        """Check that a controller with a fault is followed only after good ticks in a row."""
        who = "remote" if self.lease is not None else self.engine.in_force.name
        controller = {"rule": self.rule, "policy": self.policy}.get(who)
        if controller is not None:
            score = self.policy.score if who == "policy" else 0.0
            must_fall_back |= controller.fails or self.engine.invalid(controller.wish) is not None
            must_fall_back |= score is None or not score <= 0.5
            must_fall_back |= not math.isfinite(controller.score or 0.0)
        assert outcome.fallback or not must_fall_back
        if who != self.who:
            self.who, self.good_ticks, self.late_ticks = who, 10**6, []
        self.good_ticks += 1
        followed = self.good_ticks > self.budgets.return_after_ticks
        kind = None if outcome.fault is None else outcome.fault.kind
        late = kind is FaultKind.LATE
        self.late_ticks = [*self.late_ticks, late][-LATE_WINDOW_TICKS:] if followed else []
        forgiven = late and followed and sum(self.late_ticks) < LATE_TICKS
        if kind not in {None, FaultKind.WAITING} and not forgiven:
            self.good_ticks, self.late_ticks = 0, []
        assert outcome.fallback or self.good_ticks > self.budgets.return_after_ticks

    def check_fallback(self, outcome: TickOutcome) -> None:
        assert outcome.fallback == (outcome.fault is not None)
        names = {"default", "released"}
        assert (outcome.decision.controller in names) == outcome.fallback
        if not outcome.fallback:
            return
        usable = not self.default.fails and self.engine.invalid(self.default.wish) is None
        wanted = self.default.wish if usable else RELEASED
        assert outcome.decision.decision.desired is wanted

    @invariant()
    def no_slot_stands_still_for_too_long(self) -> None:
        if not hasattr(self, "kernel"):
            return
        for slot, (longest_s, _) in zip(self.kernel.slots, self.pods, strict=True):
            for begin_s, end_s in self.stills(slot):
                most_s = self.budgets.max_pause_s
                most_s = most_s if longest_s is None else min(most_s, longest_s)
                allowed_s = most_s + self.excess_s(slot, begin_s, end_s)
                assert end_s - begin_s <= allowed_s + EPSILON_S

    @invariant()
    def no_slot_stands_still_for_too_much_of_any_minute(self) -> None:
        if not hasattr(self, "kernel"):
            return
        for slot in self.kernel.slots:
            stills = list(self.stills(slot))
            for _, end_s in stills[-20:]:
                # The share is largest when a standstill ends.
                start_s = end_s - SHARE_WINDOW_S
                spans = (min(e, end_s) - max(b, start_s) for b, e in stills)
                still_s = sum(span for span in spans if span > 0)
                allowed_s = self.budgets.max_pause_share * SHARE_WINDOW_S
                allowed_s += self.excess_s(slot, start_s, end_s)
                assert still_s <= allowed_s + EPSILON_S

    @invariant()
    def every_slot_runs_for_a_while_after_each_thaw(self) -> None:
        if not hasattr(self, "kernel"):
            return
        for slot, (_, run_s) in zip(self.kernel.slots, self.pods, strict=True):
            stills = list(self.stills(slot))
            least_s = max(self.budgets.min_run_s, run_s or 0.0)
            for (_, end_s), (begin_s, _) in pairwise(stills):
                assert begin_s - end_s >= least_s - EPSILON_S

    def stills(self, slot: Slot) -> Iterator[tuple[float, float]]:
        """The standstills so far; the last may go on until the next tick, late as allowed."""
        yield from slot.stills
        if slot.still_since_s is not None:
            yield slot.still_since_s, self.due_s + self.budgets.late_allowance_s

    def excess_s(self, slot: Slot, begin_s: float, end_s: float) -> float:
        """The time by which ticks between two times were later than allowed in standstills."""

        return sum(late_s for at_s, late_s in slot.overruns if begin_s <= at_s <= end_s)


EXAMPLES = int(os.environ.get("STALLWARD_MACHINE_EXAMPLES", settings().max_examples))
STEPS = int(os.environ.get("STALLWARD_MACHINE_STEPS", "30"))

TestGuardedNode = pytest.mark.slow(GuardedNode.TestCase)
TestGuardedNode.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
