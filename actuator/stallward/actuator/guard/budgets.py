"""The guard's numbers, which bound every controller: the configuration's ``[guard]`` table."""

from __future__ import annotations

from dataclasses import dataclass

from stallward.agent.desired import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The bounds on what a controller may do, and the rules for replacing it after a fault."""

    max_pause_s: float = 5.0
    """The longest that a slot is paused at a time."""
    max_pause_share: float = 0.8
    """The largest share of any 60 s for which a slot is paused."""
    min_run_s: float = 0.5
    """The shortest time that a slot runs after each thaw."""
    late_allowance_s: float = 0.1
    """How late the levers of a tick may move without overrunning the pause budgets. A later tick
    overruns them by the difference."""
    hard_limit_margin_bytes: int = 16 * MIB
    """How far a hard limit stays above the memory that a slot uses, and above its limit."""
    kill_wait_s: float = 600.0
    """How long a slot gets no limit after the kernel killed one of its processes under a limit,
    and no limit below one under which it had to wait for memory."""
    max_hold_without_pressure_share: float = 0.1
    """The largest share of any hour for which background work is held back while nothing shows
    that memory is short; 1 for no bound."""
    pressure_lasts_s: float = 300.0
    """How long after the last sign of memory pressure a hold still counts as caused by it."""
    min_cpu_cores: float = 0.05
    """The lowest CPU limit of a slot."""
    min_io_bytes_per_s: int = 65536
    """The lowest limit of a slot's disk throughput."""
    stale_s: float = 0.5
    """The age above which a sample is too old to decide on."""
    return_after_ticks: int = 5
    """Ticks in a row without a fault after which a controller that was replaced decides again."""
    lift_budgets: bool = False
    """Whether to lift the pause budgets and the pace of limits, for a controller that a comparison
    must run as its source states it. Floors, protection and restoring stay."""
    allow_terminate: bool = False
    """Whether background work may be ended, also by a limit under which the kernel kills."""
    allow_protected_threads: bool = False
    """Whether threads of the protected application may get other timeslices, nice values and CPUs.
    Its total share stays, none of them starves, and all get their own values back."""
    max_thread_wait_s: float = 1.0
    """How long a thread of the protected application may be ready and not run while any of its
    threads has another setting than its own; then all get their own back."""
