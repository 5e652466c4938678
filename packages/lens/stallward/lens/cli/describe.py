"""``stallward describe trace``: the columns of traces."""

from __future__ import annotations

from stallward.actuator.cli import output


def trace() -> None:
    """List the columns of traces: unit, meaning and source."""
    from stallward.lens.trace.reference_page import trace_page  # noqa: PLC0415

    output.text(trace_page())
