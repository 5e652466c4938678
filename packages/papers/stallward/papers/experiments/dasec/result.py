"""What the experiment of DASEC found: the content of ``result.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.results.interval import Interval
from stallward.papers.experiments.runs import ExperimentResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFigures:
    """The application's threads in the measured part of a run, or on average over runs."""

    threads: float
    """The most that it had."""
    running: float
    """How many of them ran at a time."""
    waiting: float
    """How many of them waited for a CPU at a time."""
    critical: float
    """How many were on the critical path in a period."""
    delayed_share: float
    """The share of periods in which one of those was delayed."""
    interrupted_share: float
    """The share in which several of the delayed ones shared a CPU, or one exceeded it."""
    lacking_share: float
    """The share in which one of those lacked CPU share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DasecRun:
    """One finished run."""

    requests: int
    """How many requests were due."""
    answered_per_s: float
    """The service rate: requests that were answered within the run."""
    mean_ms: float
    quantiles_ms: tuple[float, ...]
    """The latency at :data:`~stallward.papers.experiments.dasec.reduce.QUANTILES`. It counts
    from when a request was due; of one that was not answered, to the end."""
    batch_per_s: float | None
    """CPU time of the batch jobs in user mode; ``None`` if there were none."""
    threads: ThreadFigures | None
    stolen_share: float
    """Steal time as a share of the CPU time."""
    node: NodeInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFigures:
    """An application at one consolidation ratio under one controller, over all repeats."""

    runs: int
    mean_ms: Interval
    p50_ms: Interval
    p99_ms: Interval
    mean_times_alone: Interval
    """The mean latency as a multiple of that of the application alone, without control."""
    p99_times_alone: Interval
    mean_ratio: Interval
    """The mean latency as a multiple of that without control at the same ratio."""
    p99_ratio: Interval
    answered_share: float
    """The service rate, as a share of that of the application alone."""
    batch_ratio: Interval
    """The CPU time of the batch jobs as a multiple of that without control."""
    threads: ThreadFigures | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioFigures:
    """An application at one consolidation ratio."""

    ratio: int
    """Batch threads for each processor."""
    arms: Mapping[str, CellFigures]
    """Name of a controller -> its figures; those without a finished run are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSummary:
    """One controller over all applications and consolidation ratios above 0."""

    cases: int
    """How many it was measured in."""
    mean_lower: Interval
    """How much lower the mean latency is than without control: the geometric mean over the cases,
    with the interval over them."""
    p99_lower: Interval
    batch_lower: Interval
    """How much less CPU time the batch jobs have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DasecExperimentResult(ExperimentResult):
    """All that was measured so far."""

    division: str
    """How the CPU was divided: ``thread`` or ``group``."""
    alone: Mapping[str, CellFigures]
    """Name of an application -> its figures alone."""
    beside: Mapping[str, tuple[RatioFigures, ...]]
    """Name of an application -> its figures beside more and more batch threads."""
    summary: Mapping[str, ArmSummary]
    """Name of a controller -> its summary, of all but the first."""
