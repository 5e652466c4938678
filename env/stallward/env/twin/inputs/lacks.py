"""What a twin lacks of what controllers may need. Pure, and quick to import."""

from __future__ import annotations

from stallward.agent.controller import Need


def twin_lacks(swap_bytes: int) -> dict[Need, str]:
    """What a twin lacks, each with the reason.

    Args:
        swap_bytes: Its swap.
    """
    lacks = {Need.CPU_WEIGHT: "a twin divides the CPU evenly"}
    return lacks if swap_bytes > 0 else {**lacks, Need.SWAP: "its scenario has none"}
