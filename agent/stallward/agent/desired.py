"""What a controller wants now, and the action table of learned policies.

A :class:`DesiredState` is declarative: repeating it changes nothing. The MultiDiscrete action
of a policy is decoded here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from stallward.agent.errors import ActionError
from stallward.agent.sample import SlotState

MIB: Final = 1024 * 1024
SLOTS: Final = 4
"""Background slots a policy sees; unused ones are absent in the observation."""

LIMIT_RATIOS: Final = (1.0, 0.8, 0.6, 0.4, 0.25, 0.1)
"""Limit level -> share of what the group used when unlimited; level 0 is no limit."""

LIMIT_SLACK_RATIO: Final = 1 / 64
"""A limit this near to the one in force is the same limit."""

DEFAULT_FLOOR_BYTES: Final = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Kernel settings of the node; ``None`` leaves the node's own value.

    The dirty ratios are shares of the zone's memory in per cent, as in vm.dirty_ratio; in a
    sandbox the lever writes the equivalent vm.dirty_bytes.
    """

    name: str = "default"
    swappiness: int | None = None
    protected_swappiness: int | None = None
    dirty_background_ratio: float | None = None
    dirty_ratio: float | None = None
    overcommit_memory: int | None = None


PROFILES: Final = (
    Tuning(name="default"),
    # Start writeback early and never block a writer on it (thesis, Algorithm 1).
    Tuning(name="flush", dirty_background_ratio=2, dirty_ratio=100),
    # Swap anonymous pages rather than drop the file pages the application reads (thesis).
    Tuning(name="keep-cache", swappiness=90, protected_swappiness=90),
)
"""The tuning profiles of the action table, in action order."""


PageAdvice = Literal["cold", "pageout", "willneed"]
"""What process_madvise(2) is told of a slot's private pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDesire:
    """What is wanted of one background slot; ``None`` leaves the slot's own value.

    Learned policies use ``paused`` and ``limit_bytes``; rules and remote controllers may use
    everything that the node has a lever for.
    """

    paused: bool = False
    limit_bytes: int | None = None
    """Soft where the kernel has such a limit: v2 memory.high; v1 memory.limit_in_bytes."""
    hard_limit_bytes: int | None = None
    """v2 memory.max: the kernel kills inside the group rather than exceed it."""
    swap_max_bytes: int | None = None
    """v2 memory.swap.max."""
    reclaim_to_bytes: int | None = None
    """Evict the slot's pages once until it holds no more; it may grow again afterwards."""
    cpu_weight: int | None = None
    """1..10000, 100 is the kernel's default; v1 cpu.shares is scaled to it."""
    cpu_max_cores: float | None = None
    """CPU seconds per second that the slot may use."""
    io_weight: int | None = None
    """1..10000, 100 is the kernel's default."""
    io_max_bytes_per_s: int | None = None
    """Of reads and of writes, on every disk the machine has."""
    nice: int | None = None
    """-20..19 for every process of the slot; never below what a process had."""
    cpus: tuple[int, ...] = ()
    """The CPUs that the slot's processes may run on; empty for their own."""
    page_advice: PageAdvice | None = None
    """Given once when it changes."""
    terminated: bool = False
    """End the whole slot: SIGTERM, then cgroup.kill; only where the configuration opts in."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ProcessRef:
    """One process, named so that a recycled pid is never hit."""

    pid: int
    start_time_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """What a controller wants of the node now.

    Missing slots mean "run, unlimited". ``stopped`` names single background processes to stop
    with SIGSTOP (latd does this); ``terminate`` one to end, which the guard grants only where
    the configuration opts in.
    """

    slots: tuple[SlotDesire, ...] = ()
    tuning: Tuning = PROFILES[0]
    stopped: tuple[ProcessRef, ...] = ()
    terminate: ProcessRef | None = None
    protect_from_oom: bool = False
    protected_low_bytes: int | None = None
    """v2 memory.low of the protected group: reclaimed last."""
    protected_willneed: bool = False
    """Have the protected application's private pages read back from swap, once."""

    def slot(self, index: int) -> SlotDesire:
        """The desire for slot ``index``; the default for slots not named."""
        return self.slots[index] if index < len(self.slots) else SlotDesire()


RELEASED: Final = DesiredState()
"""Everything running, unlimited and untuned: the node's default."""


def does_nothing(desired: DesiredState) -> bool:
    """Whether a state is the node's default, however many slots it names."""
    return replace(desired, slots=()) == RELEASED and all(s == _RUNS for s in desired.slots)


_RUNS: Final = SlotDesire()

ACTION_SIZES: Final[tuple[int, ...]] = (2, len(LIMIT_RATIOS)) * SLOTS + (len(PROFILES),)
"""MultiDiscrete sizes: per slot (paused, limit level), then the tuning profile."""


def limit_bytes(
    level: int, reference_bytes: int | None, floor_bytes: int, in_force_bytes: int | None = None
) -> int | None:
    """The limit of ``level`` for a group that used ``reference_bytes`` when unlimited.

    What a group uses creeps, and every limit written costs: one that is nearer than
    :data:`LIMIT_SLACK_RATIO` to the limit in force is left at that.

    Returns ``None`` for level 0 and while the reference is unknown: a group that is still
    starting is not limited.
    """
    if level == 0 or reference_bytes is None:
        return None
    limit = int(reference_bytes * LIMIT_RATIOS[level])
    if in_force_bytes and abs(limit - in_force_bytes) < LIMIT_SLACK_RATIO * in_force_bytes:
        limit = in_force_bytes
    return max(limit, floor_bytes)


def limit_level(limit: int | None, reference_bytes: int | None) -> int:
    """The tightest level whose limit is not below ``limit``; 0 for no limit."""
    if limit is None or not reference_bytes:
        return 0
    ratio = limit / reference_bytes
    # Neither rounding nor slack may move a limit to the next level.
    nearly = 1.0 + LIMIT_SLACK_RATIO
    return max(i for i, r in enumerate(LIMIT_RATIOS) if i == 0 or r * nearly >= ratio)


def decode_action(
    action: Sequence[int],
    slot_states: Sequence[SlotState],
    floors_bytes: Sequence[int],
) -> DesiredState:
    """Turn a MultiDiscrete action into a desired state.

    Args:
        action: ``len(ACTION_SIZES)`` integers; entries of absent slots are ignored.
        slot_states: The present slots, at most :data:`SLOTS`.
        floors_bytes: The lowest limit of each present slot.

    Raises:
        ActionError: If the length or an entry is outside the table.
    """
    if len(action) != len(ACTION_SIZES):
        raise ActionError(
            f"An action has {len(ACTION_SIZES)} entries, this one {len(action)}.",
            next_step="Use a policy exported for this action table.",
        )
    for position, (value, size) in enumerate(zip(action, ACTION_SIZES, strict=True)):
        if not 0 <= value < size:
            raise ActionError(
                f"Entry {position} of the action is {value}, outside 0..{size - 1}.",
                next_step="Use a policy exported for this action table.",
            )
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
