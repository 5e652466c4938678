"""What `partition` says about its decision. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from stallward.agent.desired import MIB
from stallward.agent.sharing.division import Division


def reason(
    demand: float,
    others: float,
    room: float,
    lent: float,
    division: Division,
    names: Sequence[str] = (),
) -> str:
    """The demand, what others hold, the room, the loan or the reserve, and who waits; in bytes.

    A slot without one of the ``names`` goes by its number.
    """
    parts = [f"demand {mib(demand)}, room {mib(room)}"]
    if others >= MIB:
        parts.append(f"others hold {mib(others)}")
    if abs(lent) >= MIB:
        parts.append(f"{mib(abs(lent))} {'lent' if lent > 0.0 else 'reserved'}")
    if division.waiting:
        waiting = (names[i] if i < len(names) else str(i) for i in division.waiting)
        parts.append(f"waiting: {', '.join(waiting)}")
    return "; ".join(parts)


def mib(size_bytes: float) -> str:
    """A size in MiB."""
    return f"{size_bytes / MIB:.0f} MiB"
