"""What every tracer does."""

from __future__ import annotations

from typing import Protocol

from stallward.lens.trace.columns import Table, Value


class Tracer(Protocol):
    """Reads one kind of trace."""

    table: Table

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be read so far, and why; a column without a value is empty."""

    def read(self) -> list[dict[str, Value]]:
        """Read the rows of one tick, without the columns of the tick.

        Raises:
            ActuatorError: If the trace cannot go on.
        """

    def close(self) -> None:
        """Close every file, and detach from the kernel."""
