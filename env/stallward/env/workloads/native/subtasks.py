"""``subtasks``: an application of threads that works on data in memory and ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from stallward.env.errors import WorkloadError

Order = Literal["scan", "random", "zipf"]
ORDERS: Final[tuple[Order, ...]] = get_args(Order)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskProgram:
    """One application: how much data it has, and what it does with it."""

    name: str
    """Its name, also of its files."""
    mib: int
    """The size of its data, in MiB."""
    subtasks: int
    """How many threads share the data and the work."""
    rounds: int
    """How often it works through all of its data."""
    compute: int
    """How many times it computes over each word of a page per visit: 1 is low, 15 is high."""
    order: Order = "scan"
    """Whether a sub-task takes its pages one after the other, or at random: all alike, or the page
    of rank k in proportion to 1/k."""

    @property
    def argv(self) -> tuple[str, ...]:
        """Its command, with placeholders."""
        return (
            "{workloads}/subtasks",
            *("--mib", str(self.mib)),
            *("--subtasks", str(self.subtasks)),
            *("--rounds", str(self.rounds)),
            *("--compute", str(self.compute)),
            *("--order", self.order),
            *("--seed", "{seed}"),
            *("--report", self.report),
        )

    @property
    def report(self) -> str:
        """The file that it writes at its end, with placeholders."""
        return f"{{run}}/{self.name}.times"


def parse_times(text: str, name: str) -> tuple[float, float]:
    """When a program started and ended, in s of CLOCK_MONOTONIC.

    Args:
        text: The content of its report.
        name: Its name, for messages.

    Raises:
        WorkloadError: If the program did not write it to its end.
    """
    words = text.split()
    try:
        start_s, end_s = (float(word) for word in words)
    except ValueError:
        raise WorkloadError(
            f"{name} did not report its times; it wrote {text.strip()[:80]!r}.",
            next_step="Run it again; the kernel may have killed it because memory ran out.",
        ) from None
    if not 0.0 <= start_s <= end_s:
        raise WorkloadError(f"{name} says that it ran from {start_s:g} to {end_s:g} s.")
    return start_s, end_s
