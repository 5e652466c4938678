"""For tests of the guard: a small model of the kernel, and wishes drawn by hypothesis.

The model records when each slot was really paused. Some of the wishes are absurd.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from stallward.actuator.guard.guard import slots_with_stopped
from stallward.actuator.guard.slot_tracker import SlotFacts
from stallward.agent.controller import Decision, NodeContext
from stallward.agent.desired import MIB, RELEASED, DesiredState, ProcessRef, SlotDesire, Tuning
from stallward.agent.file_pages import FilePages
from stallward.agent.sample import Sample

SLOTS = 2
FLOOR = 16 * MIB
ZONE = 600 * MIB
PERIOD_S = 0.1
CALM_S = 0.5
DAEMON_PID, PROTECTED_PID = 40, 42
UNTOUCHABLE = (1, DAEMON_PID, PROTECTED_PID)
NAMES = ("hog0", "hog1")


# ------------------------------------------------------------------ the kernel


@dataclass(slots=True)
class Slot:
    """The state of one background group in the kernel."""

    frozen: bool = False
    stopped: bool = False
    theirs: bool = False
    """Another program froze it."""
    limit_bytes: int | None = None
    usage_bytes: int = 300 * MIB
    swap_bytes: int = 0
    exists: bool = True
    still_since_s: float | None = None
    stills: list[tuple[float, float]] = field(default_factory=list)
    """The times between which the daemon kept it paused; only those that have ended."""
    overruns: list[tuple[float, float]] = field(default_factory=list)
    """The times at which its levers moved later than the guard allows for, and by how much."""

    @property
    def still(self) -> bool:
        return self.exists and (self.frozen or self.stopped)


@dataclass(slots=True)
class Kernel:
    """Two groups, and the times for which each of them was really paused."""

    now_s: float = 1000.0
    slots: tuple[Slot, ...] = field(default_factory=lambda: tuple(Slot() for _ in range(SLOTS)))
    refuses_pause: bool = False
    refuses_limit: bool = False
    foreign: set[str] = field(default_factory=set)

    def settle(self) -> None:
        """Record the standstills that have begun or ended."""
        for slot in self.slots:
            if slot.still and slot.still_since_s is None:
                slot.still_since_s = self.now_s
            elif not slot.still and slot.still_since_s is not None:
                slot.stills.append((slot.still_since_s, self.now_s))
                slot.still_since_s = None

    def apply(self, granted: DesiredState, sample: Sample) -> None:
        """Move the levers as LeverSet does: what is refused stays, a thaw is never refused."""
        stopped = slots_with_stopped(granted, sample)
        for index, slot in enumerate(self.slots):
            want = granted.slot(index)
            if not (want.paused and self.refuses_pause) and f"pause:{NAMES[index]}" not in (
                self.foreign
            ):
                slot.frozen = want.paused and slot.exists
            slot.stopped = index in stopped and slot.exists
            if not self.refuses_limit:
                slot.limit_bytes = want.limit_bytes
            if want.terminated:
                slot.usage_bytes = 0
        self.settle()

    def facts(self, granted: DesiredState, sample: Sample) -> list[SlotFacts]:
        """The facts of the slots, made as by ``Node.apply``."""
        stopped = slots_with_stopped(granted, sample)
        return [
            SlotFacts(
                paused=granted.slot(i).paused or slot.frozen or slot.theirs or i in stopped,
                limit_bytes=slot.limit_bytes,
                usage_bytes=sample.slots[i].memory_usage_bytes if i < len(sample.slots) else None,
                swap_bytes=slot.swap_bytes,
            )
            for i, slot in enumerate(self.slots)
        ]

    def release(self) -> None:
        """Release both groups, as the guardian does, or a tick without a sample."""
        for slot in self.slots:
            slot.frozen = slot.stopped = False
            slot.limit_bytes = None
        self.settle()


class Died(Exception):  # noqa: N818 - an event
    """The loop was killed."""


class MortalMemory(bytearray):
    """Memory that stays when its writer dies, which may be in the middle of a write."""

    cut: int | None = None
    """The number of bytes that are still written before the writer dies."""

    def __setitem__(self, where: Any, data: Any) -> None:
        if self.cut is None:
            super().__setitem__(where, data)
            return
        kept = min(self.cut, len(data))
        super().__setitem__(slice(where.start, where.start + kept), data[:kept])
        if kept < len(data):
            raise Died
        self.cut -= kept


# ------------------------------------------------------------------ wishes

sizes = st.sampled_from([0, 1, FLOOR, 50 * MIB, 240 * MIB, 10**12, 2**62])
absurd: st.SearchStrategy[Any] = st.sampled_from(
    [-1, 0, 2**63, 10**30, math.nan, math.inf, 0.5, True, "x", None]
)
processes = st.builds(
    ProcessRef,
    pid=st.sampled_from([100, 101, 999, *UNTOUCHABLE]),
    start_time_ticks=st.sampled_from([7, 8]),
)
slot_wishes = st.builds(
    SlotDesire,
    paused=st.sampled_from([True, True, False]),
    limit_bytes=st.none() | sizes,
    hard_limit_bytes=st.none() | sizes,
    swap_max_bytes=st.none() | sizes,
    reclaim_to_bytes=st.none() | sizes,
    cpu_weight=st.none() | st.sampled_from([1, 100, 10_000]),
    cpu_max_cores=st.none() | st.floats(0, 4),
    io_weight=st.none() | st.sampled_from([1, 10_000]),
    io_max_bytes_per_s=st.none() | st.integers(1, 10**9),
    nice=st.none() | st.integers(-20, 19),
    cpus=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    page_advice=st.sampled_from([None, "cold", "pageout", "willneed"]),
    terminated=st.booleans(),
)
plain_wishes = st.builds(
    DesiredState,
    slots=st.lists(
        st.builds(SlotDesire, paused=st.just(True), limit_bytes=st.none() | sizes), max_size=SLOTS
    ).map(tuple),
)
node_wishes = st.builds(
    DesiredState,
    slots=st.lists(slot_wishes, max_size=SLOTS + 1).map(tuple),
    tuning=st.builds(
        Tuning,
        swappiness=st.none() | st.integers(-1, 201),
        dirty_ratio=st.none() | st.sampled_from([0.0, 50.0, 101.0, math.nan]),
    ),
    stopped=st.lists(processes, max_size=3).map(tuple),
    terminate=st.none() | processes,
    protect_from_oom=st.booleans(),
    protected_low_bytes=st.none() | sizes,
    protected_willneed=st.booleans(),
    kill_at_once=st.booleans(),
    file_pages=st.none()
    | st.builds(
        FilePages,
        action=st.sampled_from(["flush", "clear", "cold", "pageout", "willneed", "free"]),
        victim=st.sampled_from(["largest-file", "largest-size", "next", "most-run", "protected"]),
        scope=st.sampled_from(["first", "all"]),
        grab_pages=st.sampled_from([16, 256, 512, 0]),
        writeback=st.booleans(),
    ),
)


@st.composite
def absurd_wishes(draw: st.DrawFn) -> Any:
    """A desired state with one absurd field, or a value that is no desired state at all."""
    whole = draw(node_wishes)
    name = draw(st.sampled_from([*SlotDesire.__dataclass_fields__, "slots", "stopped", "self"]))
    value = draw(absurd)
    if name == "self":
        return value
    if name in DesiredState.__dataclass_fields__:
        return replace(whole, **{name: value})
    return replace(whole, slots=(replace(SlotDesire(), **{name: value}),))


squeezes = st.builds(
    SlotDesire,
    paused=st.booleans(),
    limit_bytes=st.sampled_from([None, 1, 240 * MIB, 400 * MIB]),
    hard_limit_bytes=st.sampled_from([1, 100 * MIB, 400 * MIB]),
    swap_max_bytes=st.sampled_from([None, 0]),
    reclaim_to_bytes=st.sampled_from([None, 0]),
).map(lambda slot: DesiredState(slots=(slot,) * SLOTS))

wishes = st.one_of(plain_wishes, plain_wishes, node_wishes, absurd_wishes())
leases = st.one_of(plain_wishes, node_wishes)


Run = tuple[int, float, float, float]
tick_runs = st.tuples(
    st.sampled_from([1, 4, 12, 60]),
    st.sampled_from([PERIOD_S, PERIOD_S, CALM_S, 2.0]),
    st.sampled_from([1.0, 1.0, 0.3, 0.1]),
    st.sampled_from([0.0, 0.005, 0.05]),
)
"""A number of ticks, the longest time between two, its share that passes, the levers' delay."""


class Wishing:
    """A controller that wants the state that the test has set."""

    needs_processes = True

    def __init__(self, name: str, wish: Any = RELEASED) -> None:
        self.name = name
        self.wish = wish
        self.score: float | None = 0.0
        self.fails = False

    def reset(self, context: NodeContext) -> None:
        pass

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        if self.fails:
            raise RuntimeError(self.name)
        return Decision(desired=self.wish, score=self.score)


class WishingPolicy(Wishing):
    """A wishing controller that looks like a loaded policy with a training range."""

    path = Path("policy.onnx")
    sha256 = ""
    schema_hash = ""
    ood_limit = 0.5


PAUSE_ALL = DesiredState(slots=(SlotDesire(paused=True),) * SLOTS)
STOP_ALL = DesiredState(
    stopped=tuple(ProcessRef(pid=pid, start_time_ticks=7) for pid in (100, 101))
)
SQUEEZE_ALL = DesiredState(slots=(SlotDesire(paused=True, limit_bytes=1),) * SLOTS)
SQUEEZE_RUNNING = DesiredState(slots=(SlotDesire(limit_bytes=1, hard_limit_bytes=1),) * SLOTS)
END_ALL = DesiredState(
    slots=(SlotDesire(terminated=True, page_advice="pageout", nice=-20, cpu_max_cores=0.001),)
    * SLOTS,
    terminate=ProcessRef(pid=100, start_time_ticks=7),
    protected_low_bytes=2**40,
)
DEFAULT_WISH = DesiredState(slots=(SlotDesire(), SlotDesire(limit_bytes=250 * MIB)))
