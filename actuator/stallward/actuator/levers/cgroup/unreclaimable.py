"""Why the kernel does not take more memory from a group: what protects it, or keeps it from swap.

What is protected by memory.min is not reclaimed at all, and what is protected by memory.low only
when nothing else is left. Anonymous pages can only go to swap, of which each group above may have
its share limited (Documentation/admin-guide/cgroup-v2.rst).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_text

_MORE_SWAP: Final = "Give the node more swap."
_MOST_GROUPS: Final = 64
"""How many groups below one are looked at."""


def why_unreclaimable(folder: Path) -> tuple[str, str]:
    """Say why no more can be reclaimed from a group, and what to do.

    Args:
        folder: The group, in the hierarchy of the memory controller.

    Returns:
        The cause, empty if none of its settings is one, and the next step.
    """
    causes, steps = [], []
    for name in ("memory.min", "memory.low"):
        for group in _group_and_children(folder):
            held = _number(group / name)
            if held:
                causes.append(f"{name} of {group} protects {held} bytes")
                steps.append(
                    f"Lower {name} there (in Kubernetes, MemoryQoS sets it to the requests)."
                )
                break
    for group in (folder, *folder.parents):
        limit = _number(group / "memory.swap.max")
        if limit is None and not (group / "memory.swap.max").exists():
            break
        used = _number(group / "memory.swap.current") or 0
        if limit is not None and used >= limit:
            causes.append(f"memory.swap.max of {group} is {limit}, and {used} bytes are used")
            steps.append(
                "Raise memory.swap.max there (systemd: MemorySwapMax=; Kubernetes: swapBehavior "
                "LimitedSwap)."
            )
            break
    if _number(folder / "memory.swappiness") == 0:
        causes.append(f"memory.swappiness of {folder} is 0")
        steps.append("Raise memory.swappiness there.")
    return "; ".join(causes), " ".join(steps) or _MORE_SWAP


def _group_and_children(folder: Path) -> Iterator[Path]:
    yield folder
    try:
        with os.scandir(folder) as entries:
            folders = (
                Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)
            )
            yield from islice(folders, _MOST_GROUPS)
    except OSError:
        return


def _number(path: Path) -> int | None:
    """The number in a file; ``None`` without a limit, or if it cannot be read."""
    try:
        text = read_text(path)
    except KernelFileError:
        return None
    return int(text) if text and text.isdigit() else None
