"""``stallward describe trace``: the columns of traces."""

from __future__ import annotations

from stallward.actuator.cli import output
from stallward.lens.trace.reference_page import trace_page


def trace() -> None:
    """List the columns of traces: unit, meaning and source."""
    output.text(trace_page())
