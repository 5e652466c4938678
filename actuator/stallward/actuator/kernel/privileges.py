"""What this process may do, and which other programs act on memory pressure. Reads only."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_text
from stallward.actuator.kernel.paths import Paths


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One capability of capabilities(7) that the daemon uses."""

    name: str
    bit: int
    use: str
    """What the daemon needs it for."""


CAP_SYS_NICE: Final = "CAP_SYS_NICE"
CAPABILITIES: Final = (
    Capability(name="CAP_DAC_OVERRIDE", bit=1, use="writing files of groups that others own"),
    Capability(
        name="CAP_DAC_READ_SEARCH", bit=2, use="counting page-cache hits and misses of each group"
    ),
    Capability(
        name="CAP_KILL", bit=5, use="stopping, continuing and ending processes of other users"
    ),
    Capability(name="CAP_IPC_LOCK", bit=14, use="staying in memory under pressure"),
    Capability(name="CAP_SYS_PTRACE", bit=19, use="page advice and PSS of other users' processes"),
    Capability(name="CAP_SYS_ADMIN", bit=21, use="swap files and cgroup files in some containers"),
    Capability(
        name=CAP_SYS_NICE, bit=23, use="running before the background, setting nice and CPUs"
    ),
    Capability(name="CAP_SYS_RESOURCE", bit=24, use="PSI triggers and lower OOM scores"),
    Capability(name="CAP_PERFMON", bit=38, use="counting page-cache hits and misses by eBPF"),
    Capability(name="CAP_BPF", bit=39, use="counting page-cache hits and misses by eBPF"),
)
OTHER_DAEMONS: Final = {
    "systemd-oomd": "kills whole groups on pressure",
    "oomd": "kills whole groups on pressure",
    "oomd_bin": "kills whole groups on pressure",
    "senpai": "limits groups by memory.high",
    "earlyoom": "kills processes when memory runs out",
    "nohang": "kills processes on pressure",
    "bustd": "kills processes on pressure",
    "lmkd": "kills processes on pressure",
    "memtierd": "moves and swaps pages of processes",
    "bpftune": "tunes kernel settings",
    "tuned": "tunes kernel settings",
    "koordlet": "limits pods (memoryQOS: memory.min, memory.low, memory.high; CPU suppress) and "
    "evicts them (BEMemoryEvict)",
    "katalyst-agent": "limits, reclaims and evicts pods (memory advisor)",
}
"""Programs that act on the same things as the daemon, by the name in /proc/PID/comm."""


def effective_capabilities(proc: Path) -> frozenset[str] | None:
    """The names in :data:`CAPABILITIES` that are in effect; ``None`` if /proc does not say."""
    text = read_text(proc / "self" / "status") or ""
    lines = (line.partition(":") for line in text.splitlines())
    value = next((rest.strip() for name, _, rest in lines if name == "CapEff"), "")
    try:
        held = int(value, 16)
    except ValueError:
        return None
    return frozenset(c.name for c in CAPABILITIES if held >> c.bit & 1)


def may_have(capability: str, proc: Path) -> bool:
    """Whether this process may have a capability; true also where that cannot be read."""
    held = effective_capabilities(proc)
    return held is None or capability in held


def lockable_bytes() -> int:
    """The bytes of memory that this process may lock; -1 stands for any amount."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return soft


def other_daemons(paths: Paths) -> tuple[tuple[int, str], ...]:
    """List (pid, name) of the programs in :data:`OTHER_DAEMONS` that run."""
    daemons = []
    for folder in paths.proc.iterdir():
        if folder.name.isdigit():
            try:
                name = read_text(folder / "comm")
            except KernelFileError:  # hidden from this user
                continue
            if name in OTHER_DAEMONS:
                daemons.append((int(folder.name), name))
    return tuple(sorted(daemons))
