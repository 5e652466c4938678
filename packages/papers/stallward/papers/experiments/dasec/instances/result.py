"""What the runs of several instances found: the content of their ``result.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.results.interval import Interval
from stallward.papers.experiments.runs import ExperimentResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCost:
    """The CPU time of one request to an application that runs alone, without a daemon."""

    service_us: float
    """That of the application."""
    generator_us: float
    """That of the load generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """How many of all processors were used, as shares."""

    services: float
    """By the instances."""
    generators: float
    """By their load generators."""
    machine: float
    """By everything on the machine, these included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRun:
    """One instance in one run."""

    application: str
    requests: int
    """How many requests were due in the measured part."""
    answered_share: float
    """The share of them that was answered before its end."""
    mean_ms: float
    """The latency counts from when a request was due; of one that was not answered, to the end."""
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesRun:
    """One finished run."""

    instances: tuple[InstanceRun, ...]
    cpu: CpuUse
    stolen_share: float
    """Steal time as a share of the CPU time."""
    node: NodeInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFigures:
    """One instance over all rounds: geometric means."""

    application: str
    mean_ms: Interval
    p99_ms: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """A cell under one controller over all rounds.

    Latencies are geometric means over the instances and the rounds, with intervals over rounds.
    """

    runs: int
    instances: tuple[InstanceFigures, ...]
    mean_ms: Interval
    p99_ms: Interval
    mean_ratio: Interval
    """The mean latency as a multiple of that without control in the same round."""
    p99_ratio: Interval
    answered_share: float
    """The share of all due requests that was answered in time."""
    cpu: CpuUse
    """The mean over the rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFigures:
    """Instances side by side."""

    mix: str
    """The application of all, or ``mixed``."""
    instances: int
    load: float
    """The share of all processors that was offered."""
    arms: Mapping[str, ArmFigures]
    """Name of a controller -> its figures; those without a finished run are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverCells:
    """One controller over all cells that it ran in."""

    cells: int
    mean_ratio: Interval
    """The geometric mean over the cells, with the interval over them."""
    p99_ratio: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesResult(ExperimentResult):
    """All that was measured so far."""

    division: str
    """How the CPU was divided: ``thread`` or ``group``."""
    measured_s: float
    """How long each run was measured."""
    costs: Mapping[str, RequestCost]
    """Name of an application -> the CPU time of a request, from which the rates follow."""
    cells: tuple[CellFigures, ...]
    summary: Mapping[str, OverCells]
    """Name of a controller -> its figures over all cells, of all but the first."""
