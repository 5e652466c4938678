"""What a controller wants now, and the action table of learned policies.

A :class:`DesiredState` is declarative: repeating it changes nothing. The MultiDiscrete action
of a policy is decoded here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Final, Literal, get_args

from stallward.agent.errors import ActionError
from stallward.agent.file_pages import FilePages
from stallward.agent.sample import SlotState
from stallward.agent.threads import ThreadDesire

MIB: Final = 1024 * 1024
SLOTS: Final = 4
"""Background slots that a policy sees; unused ones are absent in the observation."""

LIMIT_RATIOS: Final = (1.0, 0.8, 0.6, 0.4, 0.25, 0.1)
"""For each limit level, the share of what the group uses when unlimited; level 0 is no limit."""

LIMIT_SLACK_RATIO: Final = 1 / 64
"""A limit that differs from the one in force by less than this share of it is not written."""

MAX_SWAPPINESS: Final = 200
"""The highest swappiness that a kernel takes, from 5.8 on; before it was 100."""

MAX_LIMIT_BYTES: Final = 1 << 62
"""The largest limit that can be expressed; a greater one would limit nothing."""

DEFAULT_FLOOR_BYTES: Final = 16 * MIB
"""The lowest limit of a slot for which no other floor is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Kernel settings of the node; ``None`` leaves the node's own value.

    The dirty ratios are per cent of the zone's memory, as in vm.dirty_ratio; in a sandbox the
    lever writes the equivalent vm.dirty_bytes.
    """

    name: str = "default"
    swappiness: int | None = None
    protected_swappiness: int | None = None
    dirty_background_ratio: float | None = None
    dirty_ratio: float | None = None
    overcommit_memory: int | None = None

    @property
    def keeps_anon(self) -> bool:
        """Whether it keeps anonymous pages of the application in memory at the cost of files."""
        return self.protected_swappiness is not None and self.protected_swappiness < _USUAL


_USUAL: Final = 60
"""The swappiness of a kernel by default."""

KEEP_ANON: Final = Tuning(
    name="keep-anon", protected_swappiness=1, dirty_background_ratio=2, dirty_ratio=100
)
"""Swap the application's anonymous pages last (v1; on v2 memory.low does that), and write early.

Not 0: for the limit of a cgroup the kernel then swaps none of them, even where nothing else is
left, and kills instead (``get_scan_count`` in mm/vmscan.c)."""

FLUSH: Final = Tuning(name="flush", dirty_background_ratio=2, dirty_ratio=100)
"""Start writeback early and never block a writer on it (latd thesis, Algorithm 1)."""

KEEP_CACHE: Final = Tuning(name="keep-cache", swappiness=90, protected_swappiness=90)
"""Swap anonymous pages rather than drop the file pages the application reads (latd thesis)."""

PROFILES: Final = (
    Tuning(name="default"),
    FLUSH,
    KEEP_CACHE,
    KEEP_ANON,
)
"""The tuning profiles of the action table, in action order. New ones come last, so that recorded
actions keep their meaning."""


NORMAL_CPU_WEIGHT: Final = 100
"""The kernel's default CPU weight, with which all groups get as much of a busy CPU."""

PageAdvice = Literal["cold", "pageout", "willneed"]
"""The advice that process_madvise(2) gives for a slot's private pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLever:
    """What follows from a field of :class:`SlotDesire` elsewhere.

    That is which values are accepted, what the guard leaves alone when another program has changed
    the setting, the text of a desired state, and the option of ``stallward ctl apply``.
    """

    words: str
    """What is to be done, as text; ``{slot}`` and ``{value}`` are filled in."""
    state: str
    """How a slot is treated for which it is done, as text; ``{value}`` is filled in."""
    help: str
    """The help of the option; empty if there is no such option."""
    names: tuple[str, ...] = ()
    """The levers that carry it out, by the part before the colon of ``LeverResult.lever``."""
    bounds: tuple[int, int] | None = None
    """The lowest and the highest value, of an integer."""
    takes_memory: bool = False
    value: str = "MIB"
    """The name of the value in the help of the option."""
    example: str = ""
    """What the value looks like, in errors; by default its name."""


_ENTRY: Final = "lever"


def _lever(
    default: Any,
    words: str,
    state: str,
    help: str = "",  # noqa: A002
    **others: Any,
) -> Any:
    """A field of :class:`SlotDesire`, with the attributes of its :class:`SlotLever`."""
    return field(
        default=default,
        metadata={_ENTRY: SlotLever(words=words, state=state, help=help, **others)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDesire:
    """What is wanted of one background slot; ``None`` leaves the slot's own value.

    Learned policies use ``paused`` and ``limit_bytes``; rules and remote controllers may use
    everything that the node has a lever for.
    """

    paused: bool = _lever(default=False, words="pause {slot}", state="paused", names=("pause",))
    limit_bytes: int | None = _lever(
        None, "limit {slot} to {value}", "limit {value}", "Memory that the slot may hold.",
        names=("limit",), bounds=(1, MAX_LIMIT_BYTES), takes_memory=True,
    )  # fmt: skip
    """A soft limit where the kernel has one: v2 memory.high; v1 memory.limit_in_bytes."""
    hard_limit_bytes: int | None = _lever(
        None, "limit {slot} hard to {value}", "hard limit {value}",
        "The same; beyond it the kernel kills.",
        names=("hard_limit",), bounds=(1, MAX_LIMIT_BYTES), takes_memory=True,
    )  # fmt: skip
    """v2 memory.max: rather than exceed it, the kernel kills a process of the group."""
    swap_max_bytes: int | None = _lever(
        None, "limit the swap of {slot} to {value}", "swap at most {value}",
        "Swap that it may use.", names=("swap_max",),
        bounds=(0, MAX_LIMIT_BYTES), takes_memory=True,
    )  # fmt: skip
    """v2 memory.swap.max."""
    reclaim_to_bytes: int | None = _lever(
        None, "reclaim {slot} to {value}", "reclaimed to {value}",
        "Evict pages once, to this size.", names=("reclaim",),
        bounds=(0, MAX_LIMIT_BYTES), takes_memory=True,
    )  # fmt: skip
    """Evict the slot's pages once until it holds no more than this; it may grow again
    afterwards."""
    cpu_weight: int | None = _lever(
        None, "set the CPU weight of {slot} to {value}", "CPU weight {value}",
        "1 to 10000; 100 is usual.",
        names=("cpu_weight", "nice"),  # a nice value stands in where a group has no weight
        bounds=(1, 10_000), value="WEIGHT", example="1..10000",
    )  # fmt: skip
    """1..10000, 100 is the kernel's default; on v1 it is scaled to cpu.shares."""
    cpu_max_cores: float | None = _lever(
        None, "limit {slot} to {value} CPUs", "at most {value} CPUs",
        "CPU seconds per second.", names=("cpu_max",),
        value="CORES",
    )  # fmt: skip
    """CPU seconds per second that the slot may use."""
    io_weight: int | None = _lever(
        None, "set the disk weight of {slot} to {value}", "disk weight {value}",
        "1 to 10000; 100 is usual.",
        names=("io_weight",), bounds=(1, 10_000), value="WEIGHT", example="1..10000",
    )  # fmt: skip
    """1..10000, 100 is the kernel's default."""
    io_max_bytes_per_s: int | None = _lever(
        None, "limit the disk of {slot} to {value}/s", "disk at most {value}/s",
        "Read, and written, per second and disk.",
        names=("io_max",), bounds=(1, MAX_LIMIT_BYTES), example="MIB_PER_S",
    )  # fmt: skip
    """Limit of reads, and the same for writes, on each disk of the machine."""
    nice: int | None = _lever(
        None, "set the nice value of {slot} to {value}", "nice {value}",
        "-20 to 19.", names=("nice",),
        bounds=(-20, 19), value="NICE", example="-20..19",
    )  # fmt: skip
    """-20..19 for every process of the slot; never below the value that a process had."""
    cpus: tuple[int, ...] = _lever(
        (), "keep {slot} to CPUs {value}", "on CPUs {value}",
        "CPUs that it may use, as 0=0-2,8.", names=("cpus",),
        value="CPUS", example="0-2,8",
    )  # fmt: skip
    """The CPUs that the slot's processes may run on; empty leaves each process its own."""
    page_advice: PageAdvice | None = _lever(  # noqa: RUF009 - a field
        None, "advise {value} for the pages of {slot}", "pages advised {value}",
        "Its pages: cold, pageout or willneed.",
        names=("pages",), value="ADVICE", example="|".join(get_args(PageAdvice)),
    )  # fmt: skip
    """Advice for the slot's private pages, given once when it changes."""
    terminated: bool = _lever(default=False, words="end {slot}", state="ended")
    """End the whole slot with SIGTERM, then cgroup.kill; only where the configuration opts in."""


SLOT_LEVERS: Final[Mapping[str, SlotLever]] = {
    one.name: one.metadata[_ENTRY] for one in fields(SlotDesire)
}
"""The entry of each field of :class:`SlotDesire`."""


def slot_option(name: str) -> str:
    """The option that sets a field of :class:`SlotDesire`: its name without the unit."""
    return "--" + re.sub(r"(_bytes|_cores)(_per_s)?$", "", name).replace("_", "-")


_WITHOUT_MEMORY: Final[dict[str, Any]] = dict.fromkeys(
    name for name, lever in SLOT_LEVERS.items() if lever.takes_memory
)
_NO_MEMORY_WISHES: Final = tuple(_WITHOUT_MEMORY.values())
_memory_wishes: Final = attrgetter(*_WITHOUT_MEMORY)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ProcessRef:
    """One process, identified by pid and start time so that a reused pid is never acted on."""

    pid: int
    start_time_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationDesire:
    """What one of several protected applications gets; ``None`` leaves its own value."""

    low_bytes: int | None = None
    """Its part of ``DesiredState.protected_low_bytes``."""
    swappiness: int | None = None
    """The swappiness of its group, which only v1 has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """What a controller wants of the node now."""

    slots: tuple[SlotDesire, ...] = ()
    """The desire for each slot; missing slots run unlimited."""
    tuning: Tuning = PROFILES[0]
    stopped: tuple[ProcessRef, ...] = ()
    """Single background processes to stop with SIGSTOP, as latd does."""
    terminate: ProcessRef | None = None
    """A background process to end; the guard allows it only where the configuration opts in."""
    protect_from_oom: bool = False
    """Whether to lower the protected application's OOM score."""
    protected_low_bytes: int | None = None
    """v2 memory.low of the protected group: memory that is reclaimed last; where the node's
    configuration says so, memory.min: memory that is never reclaimed."""
    protected_willneed: bool = False
    """Whether the protected application's private pages are read back from swap, once."""
    kill_at_once: bool = False
    """Whether what is ended (``terminate``, ``SlotDesire.terminated``) gets SIGKILL, without
    SIGTERM and its grace period before."""
    file_pages: FilePages | None = None
    """What is done to file pages, at every tick."""
    protected_threads: tuple[ThreadDesire, ...] = ()
    """What is wanted of single threads of the protected application; the guard allows it only
    where the configuration opts in."""

    applications: tuple[ApplicationDesire, ...] = ()
    """The part of each protected application, where there are several: the engine divides what the
    controller wants for all of them together (``stallward.agent.applications``)."""

    def application(self, index: int) -> ApplicationDesire:
        """What application ``index`` gets; all of it where there is one."""
        if index < len(self.applications):
            return self.applications[index]
        return ApplicationDesire(
            low_bytes=self.protected_low_bytes, swappiness=self.tuning.protected_swappiness
        )

    def slot(self, index: int) -> SlotDesire:
        """The desire for slot ``index``; the default for slots that are not named."""
        return self.slots[index] if index < len(self.slots) else SlotDesire()


RELEASED: Final = DesiredState()
"""Everything running, unlimited and untuned: the node's default."""


def does_nothing(desired: DesiredState) -> bool:
    """Whether a state is the node's default, however many slots it names."""
    slots_released = all(slot == _RELEASED_SLOT for slot in desired.slots)
    return replace(desired, slots=()) == RELEASED and slots_released


_RELEASED_SLOT: Final = SlotDesire()


def takes_memory(slot: SlotDesire) -> bool:
    """Whether anything in ``slot`` takes memory from it."""
    return _memory_wishes(slot) != _NO_MEMORY_WISHES


def without_memory_wishes(slot: SlotDesire) -> SlotDesire:
    """Return ``slot`` without everything that takes memory from it; itself if nothing does."""
    if not takes_memory(slot):
        return slot
    return replace(slot, **_WITHOUT_MEMORY)


ACTION_SIZES: Final[tuple[int, ...]] = (2, len(LIMIT_RATIOS)) * SLOTS + (len(PROFILES),)
"""MultiDiscrete sizes: per slot (paused, limit level), then the tuning profile."""


def limit_bytes(
    level: int, reference_bytes: int | None, floor_bytes: int, in_force_bytes: int | None = None
) -> int | None:
    """The limit of ``level`` for a group that uses ``reference_bytes`` when unlimited.

    The reference changes slowly all the time, and every write of a limit costs, so a limit that
    is nearly the one in force stays (:func:`steady_limit`).

    Returns:
        ``None`` for level 0, and while the reference is unknown: a group that is still starting
        is not limited.
    """
    if level == 0 or reference_bytes is None:
        return None
    limit = int(reference_bytes * LIMIT_RATIOS[level])
    return max(steady_limit(limit, in_force_bytes), floor_bytes)


def steady_limit(limit: int, in_force_bytes: int | None) -> int:
    """The limit in force where ``limit`` is nearly the same, so that it need not be written."""
    if in_force_bytes and abs(limit - in_force_bytes) < LIMIT_SLACK_RATIO * in_force_bytes:
        return in_force_bytes
    return limit


def limit_level(limit: int | None, reference_bytes: int | None) -> int:
    """The tightest level whose limit is not below ``limit``; 0 for no limit."""
    if limit is None or not reference_bytes:
        return 0
    ratio = limit / reference_bytes
    # Neither rounding nor slack may move a limit to the next level.
    tolerance = 1.0 + LIMIT_SLACK_RATIO
    return max(i for i, r in enumerate(LIMIT_RATIOS) if i == 0 or r * tolerance >= ratio)


def decode_action(
    action: Sequence[int],
    slot_states: Sequence[SlotState],
    floors_bytes: Sequence[int],
) -> DesiredState:
    """Turn a MultiDiscrete action into a desired state.

    Args:
        action: ``len(ACTION_SIZES)`` integers; the entries of absent slots are ignored.
        slot_states: The states of the present slots, at most :data:`SLOTS`.
        floors_bytes: The lowest limit of each present slot.

    Raises:
        ActionError: If the length is wrong or an entry is outside the table.
    """
    check_action(action, ACTION_SIZES)
    slots = tuple(
        SlotDesire(
            paused=bool(action[2 * i]),
            limit_bytes=limit_bytes(
                int(action[2 * i + 1]),
                state.reference_bytes,
                floors_bytes[i],
                in_force_bytes=state.limit_bytes,
            ),
        )
        for i, state in enumerate(slot_states)
    )
    return DesiredState(slots=slots, tuning=PROFILES[int(action[-1])])


def check_action(action: Sequence[int], sizes: Sequence[int]) -> None:
    """Refuse an action that does not fit its table.

    Args:
        action: One integer for each entry of the table.
        sizes: The number of choices of each entry.

    Raises:
        ActionError: If the length is wrong or an entry is outside the table.
    """
    if len(action) != len(sizes):
        raise ActionError(
            f"An action has {len(sizes)} entries, this one {len(action)}.",
            next_step="Use a policy exported for this action table.",
        )
    for position, (value, size) in enumerate(zip(action, sizes, strict=True)):
        if not 0 <= value < size:
            raise ActionError(
                f"Entry {position} of the action is {value}, outside 0..{size - 1}.",
                next_step="Use a policy exported for this action table.",
            )
