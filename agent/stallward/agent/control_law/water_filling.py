"""Water-filling: a fair division where nobody gets more than it wants. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def water_fill(
    room_bytes: float,
    wants_bytes: Sequence[float],
    floors_bytes: Sequence[float],
    weights: Sequence[float] | None = None,
) -> tuple[list[float], float]:
    """Divide memory in proportion to weights, so that nobody gets more than it wants.

    What somebody does not want is divided among the others (weighted max-min fairness; Bertsekas
    and Gallager, Data Networks, section 6.5.2). Nobody gets less than its floor, so the sum
    exceeds the room where the floors do.

    Args:
        room_bytes: The memory to divide.
        wants_bytes: What each wants.
        floors_bytes: The least that each gets.
        weights: The weight of each, above 0; equal ones by default.

    Returns:
        What each gets, and what is left over.
    """
    weights = weights or [1.0] * len(wants_bytes)
    shares = [0.0] * len(wants_bytes)
    left_weight = sum(weights)
    by_want = sorted(range(len(wants_bytes)), key=lambda i: wants_bytes[i] / weights[i])
    for index in by_want:
        part = room_bytes * weights[index] / left_weight
        left_weight -= weights[index]
        shares[index] = max(min(wants_bytes[index], part), floors_bytes[index])
        room_bytes = max(room_bytes - shares[index], 0.0)
    return shares, room_bytes
