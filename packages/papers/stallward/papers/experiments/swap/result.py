"""What the experiments on swap assignment found: the content of ``result.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.results.interval import Interval
from stallward.papers.experiments.runs import ExperimentResult


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRun:
    """One finished run of some applications."""

    response_s: Mapping[str, float]
    """Name of an application -> response time."""
    memory_bytes: Mapping[str, int]
    """Name of an application -> the most that it had in memory and swap."""
    threads: Mapping[str, int]
    """Name of an application -> the most threads that it had."""
    major_faults: Mapping[str, int] = field(default_factory=dict)
    """Name of an application -> its page faults that read from a disk or from swap; empty in runs
    that were made before these were counted."""
    stolen_share: float
    """Steal time as a share of the CPU time."""
    node: NodeInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationFigures:
    """An application as it was measured before any controller ran."""

    name: str
    memory_bytes: int
    subtasks: int
    alone_s: float
    together_s: float
    degree: float
    """Its contention degree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """One controller in one configuration, over all repeats."""

    runs: int
    response_s: Mapping[str, Interval]
    """Name of an application -> response time."""
    total_s: Interval
    """The sum of the response times of all applications."""
    lengthened: Interval
    """Lengthened latency: how much longer an application takes than alone, (c(n) - c(1)) / c(1),
    in the mean over the applications."""
    lower: Interval
    """How much lower the total is than without management, as a share of that."""
    lower_lengthened: Interval
    """The same of the lengthened latency."""
    major_faults: Mapping[str, float] = field(default_factory=dict)
    """Name of an application -> its major faults, the mean over the runs that counted them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationFigures:
    """One configuration: its applications, and how long they take under each controller."""

    name: str
    zone_bytes: int
    needed_bytes: int
    applications: tuple[ApplicationFigures, ...]
    arms: Mapping[str, ArmFigures]
    """Name of an arm -> its figures; the first is without management."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSummary:
    """One controller over all configurations of an experiment."""

    lower: Interval
    """How much lower the total is than without management: the geometric mean over the
    configurations, with the interval over them."""
    most_lower: float | None
    """The same in the configuration where it is most."""
    most_lower_in: str
    """The name of that configuration."""
    lower_lengthened: Interval
    """As ``lower``, of the lengthened latency."""
    most_lower_lengthened: float | None
    most_lower_lengthened_in: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapExperimentResult(ExperimentResult):
    """All that was measured so far."""

    case_study: ConfigurationFigures | None
    """``None`` before its first repeat is complete."""
    larger: tuple[ConfigurationFigures, ...]
    """The configurations of which a repeat is complete."""
    larger_summary: Mapping[str, ArmSummary]
    """Name of an arm -> its summary over ``larger``."""
    alpha: tuple[ConfigurationFigures, ...] = ()
    """The case studies with given shares in swap, of which a repeat is complete."""
