"""Water-filling: a fair division where nobody gets more than it wants. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def water_fill(
    room_bytes: float, wants_bytes: Sequence[float], floors_bytes: Sequence[float]
) -> tuple[list[float], float]:
    """Divide memory so that everybody gets the same, but nobody more than it wants.

    What somebody does not want is divided among the others (max-min fairness; Bertsekas and
    Gallager, Data Networks, section 6.5.2). Nobody gets less than its floor, so the sum exceeds
    the room where the floors do.

    Args:
        room_bytes: The memory to divide.
        wants_bytes: What each wants.
        floors_bytes: The least that each gets.

    Returns:
        What each gets, and what is left over.
    """
    shares = [0.0] * len(wants_bytes)
    by_want = sorted(range(len(wants_bytes)), key=wants_bytes.__getitem__)
    for done, index in enumerate(by_want):
        even = room_bytes / (len(wants_bytes) - done)
        shares[index] = max(min(wants_bytes[index], even), floors_bytes[index])
        room_bytes = max(room_bytes - shares[index], 0.0)
    return shares, room_bytes
