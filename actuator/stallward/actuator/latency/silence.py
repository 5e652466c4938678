"""What the first answer after a time without any tells of that time. Pure.

By itself such a time proves nothing: the application may have had nothing to answer. But an answer
that took longer than it has been silent shows that it was not idle: the request waited. The time in
which it had waited for longer than the target counts as missed.
"""

from __future__ import annotations


def waited_ms(at_s: float, *, answered_s: float, longest_ms: float) -> float:
    """How long the request that is answered now had waited at an earlier time; below 0 before it.

    Args:
        at_s: The earlier time.
        answered_s: The time of the first tick with an answer since then.
        longest_ms: The longest latency of the second before that tick.
    """
    return longest_ms - 1e3 * (answered_s - at_s)
