"""What a sandbox on this machine lacks of what controllers may need."""

from __future__ import annotations

from typing import Final

from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.base.plugin import installed_levers, lacks_of_levers
from stallward.actuator.levers.cgroup.vm_settings import NO_GROUP_SWAPPINESS, why_no_tuning
from stallward.actuator.levers.slot_levers import why_no_thread_settings
from stallward.actuator.sensors.processes.tracked_process import NOT_COUNTED, is_counted
from stallward.agent.controller import Need

_STALLS: Final = (
    Need.MEMORY_STALL,
    Need.APPLICATION_STALL,
    Need.SLOT_STALL,
    Need.IO_STALL,
    Need.SLOT_IO_STALL,
)


def sandbox_lacks(swap_bytes: int, paths: Paths) -> dict[Need, str]:
    """What a sandbox lacks, each with the reason.

    It has every lever on groups, or cannot be made at all.

    Args:
        swap_bytes: Its swap.
        paths: The roots of the kernel's files.
    """
    lacks = lacks_of_levers(installed_levers(), paths.proc)
    lacks |= why_no_thread_settings(paths.proc)
    if not is_counted(paths.proc):
        lacks[Need.THREAD_TIMES] = NOT_COUNTED
    if not (paths.proc / "pressure/memory").exists():
        lacks |= dict.fromkeys(_STALLS, "the kernel has no PSI")
    if why := why_no_tuning(paths.proc):
        lacks[Need.NODE_TUNING] = why
    if detect(paths).kind != "hybrid":
        lacks[Need.GROUP_SWAPPINESS] = NO_GROUP_SWAPPINESS
    return lacks if swap_bytes > 0 else {**lacks, Need.SWAP: "the scenario's sandbox has none"}
