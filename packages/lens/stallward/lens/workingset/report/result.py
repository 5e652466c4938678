"""What the analysis of a memory trace found: the content of ``result.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """How the trace was looked at."""

    page_bytes: int
    classes: tuple[str, ...]
    """The classes of references that were looked at."""
    clock: str
    """What time is counted in: ``instructions`` or ``references``."""
    lru_rate: float | None
    """The share of pages that LRU was computed from in the end; 1 is exact, ``None`` without
    LRU."""
    lru_pages: int | None = None
    """The most pages that LRU was computed from; ``None`` for no bound."""
    fault_time: float
    """D, the time that a fault takes, in the unit of the clock."""
    overhead: float
    """gamma, what a fault costs the system under LRU, in the unit of the clock."""
    working_set_overhead: float
    """The same under the working-set policy."""
    zoom: tuple[str, str] | None
    """The range of addresses of the map, in hexadecimal; ``None`` for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """A policy with one window, or one size of memory."""

    parameter: int
    """The window theta, or the pages of memory."""
    mean_pages: float
    """Mean resident size."""
    faults: float
    standard_error: float
    """Of ``faults``; zero unless they are estimated from a sample of pages."""
    lifetime: float
    """Time between faults."""
    space_time: float
    """Pages held, in the mean over the program's own time, with the waiting for faults on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """A replacement policy."""

    knee: CurvePoint
    """Primary knee: the maximum of lifetime by mean size."""
    knee_at_end: bool
    """Whether nothing but first touches faults there: the function has no knee before its end."""
    warm_knee: CurvePoint | None = None
    """The primary knee if first touches were no faults; ``None`` if there are no other ones."""
    inflection: CurvePoint | None
    """Where the lifetime rises most steeply below the knee; ``None`` if that cannot be said."""
    cheapest: CurvePoint
    """The least space-time product."""
    curve: tuple[CurvePoint, ...]
    """Some hundred points; ``curves.parquet`` has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeFigures:
    """A size around which the working set gathers."""

    pages: float
    share: float
    """Share of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFigures:
    """A time in which the working set keeps its size."""

    begin: int
    end: int
    mean_pages: float
    faults_per_million: float
    """Faults in a million units of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFigures:
    """The working set for one window over time."""

    theta: int
    mean_pages: float
    peak_pages: int
    """The largest of the samples."""
    faults: float
    sample_time: int
    """Time between samples."""
    space_time: float
    """With the size at each fault."""
    space_time_in_mean: float
    """With the mean size at every fault, as Denning approximates it."""
    modes: tuple[ModeFigures, ...]
    phases: tuple[PhaseFigures, ...]
    phase_share: float
    """Share of the time that is in phases."""
    transition_faults_per_million: float | None
    """Faults in a million units of time outside of phases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingsetResult:
    """All that a trace says."""

    schema: int = 1
    source: str
    """The file, or the command that was traced."""
    settings: TraceSettings
    error: str | None
    """Why the trace could not be read to its end; all else is of what came before."""
    lines: int
    references: Mapping[str, int]
    """Class -> references, also of classes that were not looked at."""
    time: int
    """Length of the trace by the clock."""
    pages: int
    """Pages that were touched."""
    policies: Mapping[str, PolicyFigures]
    """``working-set``, ``vmin``, which is the bound of all, and ``lru`` unless it was left out."""
    break_even_overhead: float | None
    """The largest overhead gamma of a fault under the working-set policy at which it costs no
    more than LRU, each at its cheapest; negative if it costs more without any. ``None`` without
    LRU."""
    windows: tuple[WindowFigures, ...]
