"""What a twin lacks of what controllers may need. Pure, and quick to import."""

from __future__ import annotations

from typing import Final

from stallward.agent.controller import THREAD_NEEDS, Need

_FILE_PAGES: Final = dict.fromkeys(
    (Need.FILE_CACHE, Need.REFERENCED_BITS, Need.FILE_ADVICE),
    "a twin knows how many file pages there are, not which ones were used",
)
_THREADS: Final = dict.fromkeys((*THREAD_NEEDS, Need.THREAD_TIMES), "a twin has no threads")


def twin_lacks(swap_bytes: int) -> dict[Need, str]:
    """What a twin lacks, each with the reason.

    Args:
        swap_bytes: Its swap.
    """
    lacks = {Need.CPU_WEIGHT: "a twin divides the CPU evenly", **_FILE_PAGES, **_THREADS}
    return lacks if swap_bytes > 0 else {**lacks, Need.SWAP: "its scenario has none"}
