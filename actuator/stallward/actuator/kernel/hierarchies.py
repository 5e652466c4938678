"""Finding out which kind of node this is, from its mounts and files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from stallward.actuator.errors import NodeError
from stallward.actuator.kernel import refusals
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.files import read_text
from stallward.actuator.kernel.memory.pressure import why_no_psi
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.actuator.kernel.refusals import Place

_MOUNTED_AT: Final = DEFAULT_PATHS.cgroup
"""What the kernel's table of mounts calls the place that ``Paths.cgroup`` stands for."""
_FURTHER_V1: Final = ("cpu", "blkio", "freezer")
"""v1 controllers that levers use where they are mounted."""
_NO_MOUNTS: Final = "no cgroup hierarchy with a memory controller and PSI is mounted"


def unescape(text: str) -> str:
    """Undo the octal escapes of white space in the kernel's tables of mounts and swaps."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), text)


def _cgroup_mounts(paths: Paths) -> tuple[tuple[Path, str, frozenset[str]], ...]:
    """List (mount point, "cgroup" or "cgroup2", options) of mounts below the cgroup root."""
    table = read_text(paths.proc / "self" / "mounts")
    if table is None:
        table = read_text(paths.proc / "mounts") or ""
    mounts = []
    for line in table.splitlines():
        fields = line.split(" ")
        if len(fields) < 4 or fields[2] not in {"cgroup", "cgroup2"}:
            continue
        point = Path(unescape(fields[1]))
        if point.is_relative_to(_MOUNTED_AT):
            point = paths.cgroup / point.relative_to(_MOUNTED_AT)
        # Hierarchies mounted elsewhere belong to somebody's container.
        if point.is_relative_to(paths.cgroup) and os.path.isdir(point):  # noqa: PTH112 - never raises
            mounts.append((point, fields[2], frozenset(fields[3].split(","))))
    return tuple(mounts)


def detect(paths: Paths) -> Hierarchy:
    """Find the hierarchies of the node.

    ``v2``: one hierarchy with the memory controller. ``hybrid``: the v1 memory hierarchy, and a
    v2 hierarchy without the memory controller. ``none``: anything else; ``why`` says what is
    missing.
    """
    mounts = _cgroup_mounts(paths)
    memory_v1 = next(
        (m for m, kind, opts in mounts if kind == "cgroup" and "memory" in opts), None
    )
    unified = next((m for m, kind, _ in mounts if kind == "cgroup2"), None)
    further = tuple(
        (name, point)
        for name in _FURTHER_V1
        for point, kind, options in mounts
        if kind == "cgroup" and name in options
    )
    if unified is None:
        why = f"{_NO_MOUNTS} (no cgroup2 mount below {paths.cgroup})"
        return Hierarchy(why=f"{why}.")
    controllers = (read_text(unified / "cgroup.controllers") or "").split()
    if "memory" in controllers:
        return Hierarchy(
            kind="v2",
            memory_root=unified,
            unified_root=unified,
            proc=paths.proc,
            controllers_v1=further,
            why=f"cgroup v2 with the memory controller at {unified}.",
        )
    if memory_v1 is None:
        why = _why_no_memory(paths, unified)
        return Hierarchy(
            why=f"{_NO_MOUNTS} (cgroup2 at {unified} lacks the memory controller{why})."
        )
    return Hierarchy(
        kind="hybrid",
        memory_root=memory_v1,
        unified_root=unified,
        proc=paths.proc,
        controllers_v1=further,
        why=f"v1 memory controller at {memory_v1}, v2 hierarchy at {unified}.",
    )


def _why_no_memory(paths: Paths, unified: Path) -> str:
    """Why no hierarchy has the memory controller, and what to do; empty if it is not known.

    The firmware of a Raspberry Pi switches it off at boot. New kernels do not list it then.
    """
    lines = (read_text(paths.proc / "cgroups") or "").splitlines()
    enabled = {words[0]: words[-1] for words in map(str.split, lines) if words}
    disabled = "cgroup_disable=memory" in (read_text(paths.proc / "cmdline") or "").split()
    if enabled.get("memory") == "0" or disabled:
        return ", which is switched off: boot with cgroup_enable=memory"
    if (unified / "cgroup.type").exists():  # which only the root of the machine lacks
        return f". {refusals.NOT_DELEGATED.rstrip('.')}"
    return ""


def missing(paths: Paths, hierarchy: Hierarchy) -> tuple[str, ...]:
    """What this node lacks for live use as the present user; empty if nothing."""
    reasons = []
    no_psi = why_no_psi(paths.proc / "pressure" / "memory")
    if no_psi is not None:
        reasons.append(f"PSI: {no_psi.cause} ({no_psi.next_step.rstrip('.')})")
    if hierarchy.kind == "none":
        reasons.append(hierarchy.why.rstrip("."))
    return (*reasons, *unwritable(hierarchy))


def unwritable(hierarchy: Hierarchy) -> tuple[str, ...]:
    """The hierarchies in which the present user may not change groups, and what to do."""
    found = (refusals.unwritable(root, place=Place.CGROUP) for root in hierarchy.roots)
    return tuple(f"permission: {why} ({step.rstrip('.')})" for why, step in found if why)


def require(paths: Paths) -> Hierarchy:
    """Return the hierarchies of a node on which a sandbox can be made and its pressure read.

    A daemon needs less: process trees work without groups, and without PSI.

    Raises:
        NodeError: If this node is not such; the message names everything that is missing.
    """
    hierarchy = detect(paths)
    reasons = missing(paths, hierarchy)
    if reasons:
        raise NodeError(
            f"This node cannot be used live: {'; '.join(reasons)}.",
            next_step="Use a machine with PSI and a writable memory controller, or the twin.",
        )
    return hierarchy
