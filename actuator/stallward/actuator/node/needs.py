"""What a node lacks of what controllers may need. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from stallward.agent.controller import Need

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
    trees: Sequence[str],
    swap_total_bytes: int | None,
    memory_stall_us: int | None,
    file_pages: Mapping[Need, str],
) -> dict[Need, str]:
    """What a node lacks, each with the reason.

    Args:
        levers: The name of every lever, such as ``pause:hog0``, and why it is missing.
        slots: The name of each slot, as in the names of its levers.
        trees: Those of them that are process trees.
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
    if trees:
        lacks[Need.LIMIT] = f"limit:{trees[0]}: process trees have no memory limit"
    if not swap_total_bytes:
        lacks[Need.SWAP] = "no swap is on" if swap_total_bytes == 0 else "its size is not known"
    if memory_stall_us is None:
        lacks[Need.MEMORY_STALL] = "the zone has no pressure file"
    return lacks
