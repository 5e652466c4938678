"""How much applications suffer from running together, and the priorities that follow. Pure.

Source: Su-Wei Yang, "Memory Contention Aware Swap Space Management", NTUST 2019, slides 13 to 16.
The contention degree of application i among n is

    w_i(n) = (c_i(n) - c_i(1)) / c_i(1) * 1 / N_i

with its response time c_i(n) beside the others, c_i(1) alone, and its number of sub-tasks N_i (the
document calls them threads, too). The higher the degree, the higher the priority.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from stallward.agent.errors import ControllerError, SchemaError
from stallward.agent.schema.describe import Expect
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.json_file import read_json_file
from stallward.agent.schema.read import NonNegativeInt, read

_HOW_TO_MAKE = "Make one with `stallward experiment contention`."


def contention_degree(*, alone_s: float, together_s: float, subtasks: int) -> float:
    """The contention degree w_i(n) of one application.

    It is negative for an application that was faster beside the others, as happens by chance where
    they do not disturb each other.

    Args:
        alone_s: Its response time alone, c_i(1), in s. Of a program without an end the time for
            a unit of its work is as good, since only the ratio counts.
        together_s: Its response time beside the others, c_i(n), in s.
        subtasks: Its number of sub-tasks, N_i.

    Raises:
        ControllerError: If a time is not positive and finite, or there is no sub-task.
    """
    usable = 0.0 < alone_s < math.inf and 0.0 < together_s < math.inf and subtasks >= 1
    degree = (together_s - alone_s) / alone_s / subtasks if usable else math.nan
    if not math.isfinite(degree):
        raise ControllerError(
            f"No contention degree follows from {alone_s:g} s alone, {together_s:g} s together "
            f"and {subtasks} sub-tasks.",
            next_step="Give two positive times and at least one sub-task.",
        )
    return degree


def priority_order(degrees: Sequence[float]) -> tuple[int, ...]:
    """The applications by priority, the highest first; equal ones stay in their order.

    Args:
        degrees: The contention degree of each application.
    """
    return tuple(sorted(range(len(degrees)), key=lambda i: -degrees[i]))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredApplication:
    """One application as it was measured alone and beside the others."""

    name: str
    alone_s: Annotated[float, Expect(low=0)]
    """Response time alone; of a program without an end, seconds for a unit of its work."""
    together_s: Annotated[float, Expect(low=0)]
    """The same beside the others."""
    subtasks: Annotated[int, Expect(low=1)]
    """The most threads that it had."""
    memory_bytes: NonNegativeInt
    """The most memory that it held alone, with what it had in swap: its MEM(i)."""

    def __post_init__(self) -> None:
        """Refuse times from which no degree follows.

        Raises:
            ControllerError: If a time is 0.
        """
        self.degree  # noqa: B018 - it checks the numbers

    @property
    def degree(self) -> float:
        """Its contention degree."""
        return contention_degree(
            alone_s=self.alone_s, together_s=self.together_s, subtasks=self.subtasks
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentionFile:
    """What ``stallward experiment contention`` measured, as controllers read it."""

    applications: tuple[MeasuredApplication, ...]

    def of(self, name: str) -> MeasuredApplication | None:
        """The application ``name``; ``None`` if it was not measured."""
        return next((one for one in self.applications if one.name == name), None)


def read_contention(path: Path) -> ContentionFile:
    """Read what was measured.

    Raises:
        ControllerError: If the file cannot be read, or holds something else.
    """
    try:
        return read(ContentionFile, read_json_file(path), strict=False)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ControllerError(
            f"The contention degrees {path} cannot be read: {reason}.",
            next_step=next_step_of(error, _HOW_TO_MAKE),
        ) from error
    except SchemaError as error:
        raise ControllerError(
            f"{path} is not a file of contention degrees: {error}", next_step=_HOW_TO_MAKE
        ) from error
