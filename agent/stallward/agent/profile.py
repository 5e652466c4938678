"""What an application was measured to need: the file that ``stallward profile`` writes.

Controllers, the daemon's configuration and comparisons read it. Sizes are in bytes, times in
seconds unless their name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from stallward.agent.errors import ProfileError, SchemaError
from stallward.agent.schema.describe import Expect
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.json_file import read_json_file
from stallward.agent.schema.read import NonNegativeInt, read

KIND: Final = "stallward-profile"
SCHEMA: Final = 1
"""The version of the file's keys; a reader refuses every other one."""
_HOW_TO_MAKE: Final = "Make one with `stallward profile`."

WorkUnit = Literal["run", "request", "unit"]
"""What ``s_per_work`` is the time of: the whole command, a request in the mean, or a unit of a
background group's work."""
_Time = Annotated[float, Expect(low=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandPoint:
    """The application's memory at one time, alone."""

    time_s: _Time
    """Since the measurement began."""
    memory_bytes: NonNegativeInt
    """All memory of its group, with page cache."""
    anonymous_bytes: NonNegativeInt
    file_bytes: NonNegativeInt
    swap_bytes: NonNegativeInt


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedWindow:
    """How much memory its processes touched in windows of one length, alone."""

    window_s: _Time
    mean_bytes: NonNegativeInt
    peak_bytes: NonNegativeInt


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRun:
    """One run with one memory limit."""

    limit_bytes: NonNegativeInt
    ample: bool
    """Whether this was enough memory for anything, so that the run is the measure for others."""
    measured_s: _Time
    mean_bytes: NonNegativeInt
    """Its memory in the mean."""
    peak_bytes: NonNegativeInt
    peak_swap_bytes: NonNegativeInt
    read_back_pages: NonNegativeInt
    """Pages that the kernel had taken and that it needed again, from files and from swap."""
    major_faults: NonNegativeInt
    cpu_s: _Time | None
    """Its processor time; ``None`` if the kernel does not count it by group."""
    stall_share: Annotated[float, Expect(low=0, high=1)] | None
    """Share of the time in which some of it waited for memory."""
    s_per_work: _Time | None
    """The time for its work, in the unit of the profile; ``None`` if it did none or tells none."""
    p95_ms: _Time | None = None
    """The quantile of its requests that the target is for, the p95 by default."""
    slowdown: _Time | None = None
    """``s_per_work`` over that of the ample run."""
    killed: bool = False
    """Whether the kernel killed one of its processes because memory ran out."""
    fits: bool
    """Whether it was undisturbed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """The primary knee of its lifetime function: the largest lifetime by size."""

    memory_bytes: NonNegativeInt
    """Its memory there, in the mean."""
    lifetime_s: _Time
    """The processor time between two pages that were read back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationProfile:
    """All that was measured of one application: the content of the file."""

    kind: Literal["stallward-profile"] = "stallward-profile"
    schema: int = SCHEMA
    application: str
    """Its name: ``application`` or the group of a scenario, or the name of a command."""
    source: str
    """The scenario or the command."""
    measured_at: str
    """When, by ISO 8601."""
    node: str
    """The machine, in words."""
    tolerance: Annotated[float, Expect(low=1)]
    """The largest slowdown at which an application without a target counts as undisturbed."""
    target_ms: _Time | None
    """The target that its requests must keep to count as undisturbed: the scenario's, or as for
    comparisons 1.5 times the p99 with ample memory. ``None`` without requests."""
    work: WorkUnit
    working_set_bytes: NonNegativeInt
    """What it needs: the smallest limit at which, and above which, it was undisturbed; what it
    used at most under this limit, where that is less."""
    least_bytes: NonNegativeInt
    """The smallest limit at which it still ran, however slowly."""
    alone_peak_bytes: NonNegativeInt
    """The most memory that it had alone, with page cache and swap."""
    anonymous_bytes: NonNegativeInt
    """What of its memory was anonymous, alone, in the mean."""
    file_bytes: NonNegativeInt
    """What of it was page cache."""
    threads: NonNegativeInt
    """The most threads that it had."""
    alone_s: _Time | None
    """``s_per_work`` of the ample run: its response time alone."""
    fault_cost_us: _Time | None
    """What a major fault costs: the time that some of it waited for memory, over the faults of all
    runs with a hundred or more. ``None`` if there was none, or waiting is not counted."""
    knee: Knee | None
    """``None`` if no run read a hundred pages back, or processor time is not known."""
    demand: tuple[DemandPoint, ...]
    """Its memory over time, alone."""
    touched: tuple[TouchedWindow, ...]
    """By length; what several processes share counts for each of them."""
    runs: tuple[ProfileRun, ...]
    """Those with most memory first."""


def read_profile(path: Path) -> ApplicationProfile:
    """Read a profile.

    Raises:
        ProfileError: If the file cannot be read, or is none of this version.
    """
    try:
        content = read_json_file(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ProfileError(
            f"The profile {path} cannot be read: {reason}.",
            next_step=next_step_of(error, _HOW_TO_MAKE),
        ) from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise ProfileError(
            f"{path} is not a profile of an application: it has no kind {KIND!r}.",
            next_step=_HOW_TO_MAKE,
        )
    if content.get("schema") != SCHEMA:
        raise ProfileError(
            f"{path} is a profile of version {content.get('schema')!r}; this program reads "
            f"version {SCHEMA}.",
            next_step="Make it again with `stallward profile` of this version.",
        )
    try:
        return read(ApplicationProfile, content, strict=False)
    except SchemaError as error:
        raise ProfileError(
            f"{path} is not a profile that can be used: {error}", next_step=_HOW_TO_MAKE
        ) from error
