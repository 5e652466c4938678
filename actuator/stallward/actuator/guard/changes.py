"""What the guard granted less of than was wished, as values: which rule, and its numbers. Pure.

Programs compare and count these values. The sentences that people read are made from them in
``reasons_text`` and nowhere else.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Wish(enum.Enum):
    """The part of a desired state that was not granted as it was wished."""

    SLOT = "slot"
    """Everything that was wished of one slot."""
    PAUSE = "pause"
    STOP = "stop"
    """Stopping one process."""
    TERMINATE = "terminate"
    """Ending a slot, or one process where ``pid`` is set."""
    LIMIT = "limit"
    HARD_LIMIT = "hard_limit"
    SWAP_MAX = "swap_max"
    RECLAIM = "reclaim"
    MEMORY = "memory"
    """All that takes memory from a slot: limits, hard limits, swap limits and reclaim."""
    CPU_MAX = "cpu_max"
    IO_MAX = "io_max"
    NICE = "nice"
    CPUS = "cpus"
    PAGE_ADVICE = "page_advice"
    PROTECTED_LOW = "protected_low"
    """The guaranteed memory of the protected group."""
    LEVER = "lever"
    """Whatever ``lever`` would have changed."""
    OTHER = "other"
    """One that this version does not know."""


class GuardRule(enum.Enum):
    """The rule of the guard that refused or changed a wish."""

    MAX_PAUSE = "max_pause"
    """A pause lasts ``bound`` seconds at most; the slot has been paused for ``found``."""
    PAUSE_SHARE = "pause_share"
    """A slot is paused for the share ``bound`` of a minute at most; it was for ``found``."""
    MIN_RUN = "min_run"
    """A slot runs for ``bound`` seconds after a thaw; the last one was ``found`` seconds ago."""
    PROTECTED_PROCESS = "protected_process"
    """The slot is left alone: ``protected_pid`` runs in it."""
    NOT_IN_SAMPLE = "not_in_sample"
    """The sample has other slots than the node."""
    NOT_BACKGROUND = "not_background"
    """The process is not one of the background."""
    NOT_ALLOWED = "not_allowed"
    """The configuration does not allow it."""
    SET_BY_OTHERS = "set_by_others"
    """Somebody else has changed the setting, so the daemon leaves it alone."""
    DEMAND_UNKNOWN = "demand_unknown"
    """How much memory the slot wants is not known yet."""
    USAGE_UNKNOWN = "usage_unknown"
    """How much memory the slot holds is not known."""
    NO_TIME = "no_time"
    """The sample has no usable time, so no step can be paced."""
    FLOOR = "floor"
    """Nothing goes below the slot's floor, ``bound`` bytes."""
    ONE_LEVEL = "one_level"
    """Memory is taken one level a tick, now down to ``bound`` bytes."""
    ABOVE_USAGE = "above_usage"
    """A hard limit stays above what the slot holds, at ``bound`` bytes."""
    ABOVE_LIMIT = "above_limit"
    """A hard limit is not below the limit of ``bound`` bytes."""
    LIMIT_KILLED = "limit_killed"
    """Under a limit the kernel killed in the slot, ``found`` seconds ago."""
    BESIDE_HARD_LIMIT = "beside_hard_limit"
    """There is no swap limit beside a hard limit."""
    MINIMUM = "minimum"
    """The least that is granted is ``bound``."""
    CPUS_OFFLINE = "cpus_offline"
    """Of the CPUs that were wished, ``found`` are not online."""
    NO_CPU_ONLINE = "no_cpu_online"
    """None of the CPUs that were wished is known to be online."""
    STILL_RUNNING = "still_running"
    """Paging out everything at once is for slots that are paused."""
    ZONE_UNKNOWN = "zone_unknown"
    """The memory of the zone is not known."""
    ZONE_MEMORY = "zone_memory"
    """The guarantee is at most the memory of the zone, ``bound`` bytes."""
    OTHER = "other"
    """One that this version does not know."""


class Unit(enum.Enum):
    """The unit of the numbers of a change."""

    NONE = ""
    SECONDS = "s"
    SHARE = "share"
    BYTES = "bytes"
    BYTES_PER_SECOND = "bytes/s"
    CORES = "cores"
    CPUS = "CPUs"
    NICE = "nice"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardChange:
    """One wish that was refused or changed."""

    rule: GuardRule
    wish: Wish
    slot: int | None = None
    """The number of the slot; ``None`` for what is no slot's."""
    group: str = ""
    """The name of the slot's group in the sample."""
    pid: int | None = None
    """The process that was to be stopped or ended."""
    protected_pid: int | None = None
    """The protected process that runs in the slot."""
    lever: str = ""
    """The lever that somebody else has moved."""
    found: float | None = None
    """The number that the guard saw, where the rule names one."""
    bound: float | None = None
    """The number that the rule allows or grants, where it names one."""
    unit: Unit = Unit.NONE
    """The unit of both numbers."""
