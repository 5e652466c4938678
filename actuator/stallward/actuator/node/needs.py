"""What a node lacks of what controllers may need. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from stallward.agent.controller import THREAD_NEEDS, Need

_LEVERS: Final[dict[Need, tuple[str, ...]]] = {
    Need.PAUSE: ("pause",),
    Need.LIMIT: ("limit",),
    Need.CPU_WEIGHT: ("cpu_weight", "nice"),
    Need.CPU_MAX: ("cpu_max",),
    Need.RECLAIM: ("reclaim",),
    Need.TERMINATE: ("terminate",),
}
"""The levers that will do for a need, by the part of their names before the colon."""


def lacks_of(
    levers: Iterable[tuple[str, str]],
    *,
    slots: Sequence[str],
    protected: str,
    threads_allowed: bool,
    trees: Sequence[str],
    swap_total_bytes: int | None,
    memory_stall_us: int | None,
    file_pages: Mapping[Need, str],
) -> dict[Need, str]:
    """What a node lacks, each with the reason.

    Args:
        levers: The name of every lever, such as ``pause:hog0``, and why it is missing.
        slots: The name of each slot, as in the names of its levers.
        protected: The name of the protected application, likewise; empty while it is not there.
        threads_allowed: Whether the configuration allows other settings of its threads.
        trees: Those of the slots that are process trees.
        swap_total_bytes: The size of all swap; ``None`` where it is not known.
        memory_stall_us: How long tasks of the zone waited for memory; ``None`` where that is not
            known.
        file_pages: What the lever on file pages lacks, each with the reason.
    """
    missing = dict(levers)
    lacks: dict[Need, str] = {need: f"file_pages: {why}" for need, why in file_pages.items()}
    for need, names in _LEVERS.items():
        for slot in slots:
            reasons = [missing.get(f"{name}:{slot}", "no such lever") for name in names]
            if all(reasons):
                lacks.setdefault(need, reasons[0])
    for need in THREAD_NEEDS:
        why = missing.get(f"{need}:{protected}", "no such lever") if protected else ""
        if why or not threads_allowed:
            lacks[need] = why or "guard.allow_protected_threads is not true"
    if trees:
        lacks[Need.LIMIT] = f"limit:{trees[0]}: process trees have no memory limit"
    if not swap_total_bytes:
        lacks[Need.SWAP] = "no swap is on" if swap_total_bytes == 0 else "its size is not known"
    if memory_stall_us is None:
        lacks[Need.MEMORY_STALL] = "the zone has no pressure file"
    return lacks
