"""Rates of the totals that two samples hold. Pure."""

from __future__ import annotations


def stall_share(before_us: int | None, now_us: int | None, elapsed_s: float) -> float | None:
    """The share of the time between two stall totals that was stalled; ``None`` if unknown."""
    rate = rate_per_s(before_us, now_us, elapsed_s)
    return None if rate is None else min(1e-6 * rate, 1.0)


def rate_per_s(before: int | None, now: int | None, elapsed_s: float) -> float | None:
    """The growth of a counter per second; ``None`` if it is not known."""
    if before is None or now is None or elapsed_s <= 0.0:
        return None
    return max(now - before, 0) / elapsed_s
