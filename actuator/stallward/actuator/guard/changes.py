"""The changes that the guard makes to a desired state, as values: the rule and its numbers. Pure.

A *wish* is one part of a desired state. Programs compare and count the changes. The sentences that
people read are made from them in ``record/reasons_text.py`` and nowhere else.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Wish(enum.Enum):
    """The part of a desired state that was refused or changed."""

    SLOT = "slot"
    """Everything that was desired of one slot."""
    PAUSE = "pause"
    STOP = "stop"
    """To stop one process."""
    TERMINATE = "terminate"
    """To end a slot, or one process where ``pid`` is set."""
    LIMIT = "limit"
    HARD_LIMIT = "hard_limit"
    SWAP_MAX = "swap_max"
    RECLAIM = "reclaim"
    MEMORY = "memory"
    """Everything that takes memory from a slot: limits, hard limits, swap limits and reclaim."""
    HOLD = "hold"
    """Everything that holds a slot back: its pause and everything that takes memory from it."""
    CPU_MAX = "cpu_max"
    IO_MAX = "io_max"
    NICE = "nice"
    CPUS = "cpus"
    PAGE_ADVICE = "page_advice"
    FILE_PAGES = "file_pages"
    """What is done to file pages."""
    PROTECTED_LOW = "protected_low"
    """The guaranteed memory of the protected group."""
    THREADS = "threads"
    """Settings of threads of the protected application; of one where ``tid`` is set."""
    LEVER = "lever"
    """The setting that ``lever`` would have changed."""
    OTHER = "other"
    """A wish that this version does not know."""


class GuardRule(enum.Enum):
    """The rule by which the guard refused or changed a wish."""

    MAX_PAUSE = "max_pause"
    """A pause lasts at most ``bound`` seconds; the slot has been paused for ``found`` seconds."""
    PAUSE_SHARE = "pause_share"
    """A slot is paused for at most the share ``bound`` of a minute; the share is ``found`` now."""
    MIN_RUN = "min_run"
    """A slot runs at least ``bound`` seconds after a thaw; the last was ``found`` seconds ago."""
    POD_PAUSE = "pod_pause"
    """The slot's work tolerates a pause of ``bound`` seconds, by ``max_pause_s`` or the probes of
    its pod; the slot has been paused for ``found`` seconds."""
    PROTECTED_PROCESS = "protected_process"
    """The slot is left alone: ``protected_pid`` runs in it."""
    NOT_IN_SAMPLE = "not_in_sample"
    """The sample does not have the slots of the node."""
    NOT_BACKGROUND = "not_background"
    """The process is not a background process."""
    NOT_ALLOWED = "not_allowed"
    """The configuration does not allow it."""
    SET_BY_OTHERS = "set_by_others"
    """Another program has changed the setting, so the daemon steps aside."""
    DEMAND_UNKNOWN = "demand_unknown"
    """The memory that the slot needs without a limit is not known yet."""
    USAGE_UNKNOWN = "usage_unknown"
    """The memory that the slot uses is not known."""
    NO_TIME = "no_time"
    """The sample has no usable time, so the pace of limits cannot be kept."""
    FLOOR = "floor"
    """No limit is below the slot's floor, ``bound`` bytes."""
    LOWEST_WORKABLE = "lowest_workable"
    """The slot cannot work under a limit below ``bound`` bytes."""
    ONE_LEVEL = "one_level"
    """Memory is taken one level a tick, now down to ``bound`` bytes."""
    ABOVE_USAGE = "above_usage"
    """A hard limit stays above the memory that the slot uses, at ``bound`` bytes."""
    ABOVE_LIMIT = "above_limit"
    """A hard limit stays above the limit, at ``bound`` bytes."""
    HARD_ALONE = "hard_alone"
    """A hard limit is granted only beside a limit, which slows the slot down before it kills."""
    LIMIT_KILLED = "limit_killed"
    """The kernel killed in the slot under a limit, ``found`` seconds ago."""
    BESIDE_HARD_LIMIT = "beside_hard_limit"
    """No swap limit is granted beside a hard limit."""
    MINIMUM = "minimum"
    """The lowest value that is granted is ``bound``."""
    CPUS_OFFLINE = "cpus_offline"
    """``found`` of the desired CPUs are not online."""
    NO_CPU_ONLINE = "no_cpu_online"
    """None of the desired CPUs is known to be online."""
    STILL_RUNNING = "still_running"
    """Only a paused slot may be paged out at once."""
    ZONE_UNKNOWN = "zone_unknown"
    """The memory of the zone is not known."""
    ZONE_MEMORY = "zone_memory"
    """The guaranteed memory is at most the memory of the zone, ``bound`` bytes."""
    NO_PRESSURE = "no_pressure"
    """The last sign of memory pressure was ``found`` seconds ago, and without one a slot is held
    back for at most ``bound`` seconds of an hour."""
    NOT_A_THREAD = "not_a_thread"
    """The thread is none of the protected application in the sample."""
    THREAD_STEPS = "thread_steps"
    """A thread's nice value stays near its own; ``bound`` is granted."""
    TOTAL_SHARE = "total_share"
    """The application's share of the CPU stays as it is: ``found`` is the sum of the weights that
    were wanted, ``bound`` that of its threads' own."""
    THREAD_STARVED = "thread_starved"
    """The thread was ready and did not run for ``found`` seconds; ``bound`` are allowed."""
    OTHER = "other"
    """A rule that this version does not know."""


class Unit(enum.Enum):
    """The unit of the numbers of a :class:`GuardChange`."""

    NONE = ""
    SECONDS = "s"
    SHARE = "share"
    BYTES = "bytes"
    BYTES_PER_SECOND = "bytes/s"
    CORES = "cores"
    CPUS = "CPUs"
    NICE = "nice"
    WEIGHT = "weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardChange:
    """One wish that was refused or changed."""

    rule: GuardRule
    wish: Wish
    slot: int | None = None
    """The number of the slot; ``None`` if the wish is not about a slot."""
    group: str = ""
    """The name of the slot's group in the sample."""
    pid: int | None = None
    """The process that was to be stopped or ended."""
    protected_pid: int | None = None
    """The protected process that runs in the slot."""
    lever: str = ""
    """The lever whose setting another program has changed."""
    found: float | None = None
    """The number that the guard saw, where the rule uses one."""
    bound: float | None = None
    """The number that the rule allows or grants, where it uses one."""
    unit: Unit = Unit.NONE
    """The unit of both numbers."""
    tid: int | None = None
    """The thread whose setting was wanted."""
