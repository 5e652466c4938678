"""How far any controller may go: the guard's numbers, the ``[guard]`` table of the daemon."""

from __future__ import annotations

from dataclasses import dataclass

from stallward.agent.desired import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """How far a controller may go, and when it is taken off."""

    max_pause_s: float = 5.0
    max_pause_share: float = 0.8
    """Of any 60 s."""
    min_run_s: float = 0.5
    """After each thaw."""
    late_allowance_s: float = 0.1
    """A tick whose levers move this late still keeps the pause budgets; later ones overrun them
    by what they are later."""
    hard_limit_margin_bytes: int = 16 * MIB
    """How far above what a slot holds a hard limit stays while it is tightened."""
    kill_wait_s: float = 600.0
    """A slot in which the kernel killed under a limit gets no limit for so long."""
    min_cpu_cores: float = 0.05
    """The least CPU time a slot is left."""
    min_io_bytes_per_s: int = 65536
    """The least disk throughput a slot is left."""
    stale_s: float = 0.5
    """A sample older than this is not decided on."""
    return_after_ticks: int = 5
    """Good ticks in a row after which a controller that was taken off decides again."""
    lift_budgets: bool = False
    """Lift the pause budgets and the limit's pace (never floors, protection or restoring), for
    a controller that a comparison must run as its source states it."""
    allow_terminate: bool = False
    """Background work may be ended, also by a limit that makes the kernel kill."""
