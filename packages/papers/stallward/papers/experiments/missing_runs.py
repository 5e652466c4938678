"""Makes the runs of an experiment that are missing, as far as there is time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from stallward.training.progress import Report

S = TypeVar("S")


def make_missing(
    missing: Sequence[S],
    make: Callable[[S], None],
    *,
    minutes: float,
    report: Report,
    describe: Callable[[S], str],
) -> None:
    """Make one run after the other until none is missing, or the time is over.

    Args:
        missing: The runs that are missing, in their order.
        make: Makes one and keeps it.
        minutes: After how long no further run is begun.
        report: Told about progress.
        describe: What one of them is, in a few words.
    """
    began_s = time.monotonic()
    for number, step in enumerate(missing):
        if time.monotonic() - began_s >= 60.0 * minutes:
            return
        report(describe(step), number / len(missing))
        make(step)
