"""The whole machine as a zone: what the root of a cgroup hierarchy lacks is in /proc."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from stallward.actuator.sensors.files.meminfo import MemoryInfo
from stallward.agent.sample import GroupSample, NodeSample, PsiTotals


def machine_zone(root: GroupSample, node: NodeSample, info: MemoryInfo) -> GroupSample:
    """The zone ``/``.

    What means the same in a group and on the machine is taken over: its memory in use counts
    the page cache, as a group's does.

    Args:
        root: What the root group of a hierarchy has; all absent where there is none.
        node: The machine's counters.
        info: Of the same read.
    """
    used = None
    if info.total_bytes is not None and info.free_bytes is not None:
        used = max(info.total_bytes - info.free_bytes, 0)
    swap = None
    if info.swap_total_bytes is not None and info.swap_free_bytes is not None:
        swap = max(info.swap_total_bytes - info.swap_free_bytes, 0)
    found: dict[str, Any] = {
        "memory_usage_bytes": used,
        "anon_bytes": info.anon_bytes,
        "file_bytes": info.file_bytes,
        "inactive_file_bytes": info.inactive_file_bytes,
        "swap_bytes": swap,
        "dirty_bytes": node.dirty_bytes,
        "writeback_bytes": node.writeback_bytes,
        "refault_file_pages": node.refault_file_pages,
        "refault_anon_pages": node.refault_anon_pages,
        "major_faults": node.major_faults,
    }
    absent = {name: value for name, value in found.items() if getattr(root, name) is None}
    return replace(root, psi=_psi(root.psi, node.psi), **absent)


def _psi(root: PsiTotals, node: PsiTotals) -> PsiTotals:
    missing = {
        field.name: getattr(node, field.name)
        for field in fields(PsiTotals)
        if getattr(root, field.name) is None
    }
    return replace(root, **missing)
