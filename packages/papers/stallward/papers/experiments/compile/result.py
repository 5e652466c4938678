"""What the compile sweep found: the content of ``result.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.results.interval import Interval
from stallward.papers.experiments.runs import ExperimentResult


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRun:
    """One finished compilation, and what the whole machine did meanwhile."""

    seconds: float
    """How long it took."""
    peak_bytes: int
    """The most that it had in memory and swap."""
    idle_share: float
    """Share of the processors' time in which they had nothing to run."""
    major_faults: int
    """Page faults that read from a disk or from swap."""
    disk_requests: int
    disk_bytes: int
    stolen_share: float
    """Steal time as a share of the CPU time."""
    node: NodeInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """One arm at one size of memory, over its repeats."""

    seconds: tuple[float, ...]
    """How long each run took, in their order."""
    mean_s: Interval
    ratio: Interval
    """The mean over that of the unpatched kernel."""
    idle_share: float
    """The mean, as of the figures below."""
    major_faults: float
    disk_requests: float
    disk_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeFigures:
    """One size of memory."""

    zone_mib: int
    arms: Mapping[str, ArmFigures]
    """Name of an arm -> its figures; the first is the unpatched kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerFit:
    """``T = k / M^power + c``, by least squares, without the shortest and the longest run."""

    k: float
    """In s * MiB^power."""
    c_s: float
    power: float
    explained_share: float
    """The share of the variance that it explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileResult(ExperimentResult):
    """All that was measured so far."""

    peak_bytes: int
    """The most that a compilation had in memory and swap in any run."""
    sizes: tuple[SizeFigures, ...]
    """The sizes of which a repeat is complete, in rising order."""
    ratios: Mapping[str, Interval]
    """Name of an arm -> its time over the unpatched kernel's: the geometric mean over the sizes,
    with the interval over them."""
    fit: PowerFit | None
    """The document's fit, to the unpatched kernel; ``None`` for fewer than five runs."""
    free_fit: PowerFit | None
    """The same with the power that fits best."""
