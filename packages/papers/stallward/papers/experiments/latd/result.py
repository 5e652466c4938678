"""What the experiments of the latd thesis found: the content of ``result.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.results.interval import Interval
from stallward.papers.experiments.runs import ExperimentResult


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySeries:
    """Memory over one run, burn-in included; tuples of one length."""

    images: tuple[int, ...]
    """How many images were asked for until then."""
    detector_bytes: tuple[int, ...]
    """The resident set of the detector."""
    hog_bytes: tuple[int, ...]
    """The resident set of the hog; 0 before it starts."""
    cache_bytes: tuple[int, ...]
    """The page cache of the zone."""
    used_bytes: tuple[int, ...]
    """What the zone holds in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookups:
    """Lookups of pages in the page cache in the measured part of a run."""

    hits: int
    misses: int

    @property
    def total(self) -> int:
        """All lookups."""
        return self.hits + self.misses


@dataclass(frozen=True, slots=True, kw_only=True)
class LatdRun:
    """One finished run."""

    request_s: tuple[float, ...]
    """When each image was asked for, from the begin of the measured part."""
    latency_ms: tuple[float, ...]
    """How long the detector took for it."""
    unfinished: int
    """How many of the images were not done when the run ended; theirs is a lower bound."""
    detector_lookups: Lookups | None
    """Lookups by the detector; ``None`` where they cannot be counted."""
    zone_lookups: Lookups | None
    """Lookups by detector and hog."""
    memory: MemorySeries
    work_mib_per_s: float | None
    """What the hog touched; ``None`` if there was none."""
    stopped_share: float
    """The share of time for which the hog was stopped."""
    terminated: int
    """How many processes the controller ended."""
    stolen_share: float
    """Steal time as a share of the CPU time."""
    node: NodeInfo
    not_counted: str = ""
    """Why lookups were not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFigures:
    """One setting, over all repeats."""

    runs: int
    images: int
    """How many images were asked for."""
    p50_ms: Interval
    p95_ms: Interval
    p98_ms: Interval
    p99_ms: Interval
    times_isolated: Interval
    """Its p95 as a multiple of that of the detector alone."""
    miss_share: Interval
    """The miss rate of the detector's lookups in the page cache."""
    zone_miss_share: Interval
    """That of all lookups in the zone."""
    detector_bytes: tuple[int, int]
    """The resident set of the detector, before the hog starts and at its least after that."""
    cache_bytes: tuple[int, int]
    """The page cache, at the same times."""
    hog_bytes: tuple[int, int]
    """The resident set of the hog, at its most and at the end."""
    used_share_most: float
    """The most of its memory that the zone held."""
    work_mib_per_s: float | None
    stopped_share: float
    terminated: int
    """In how many runs the controller ended the hog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFigures:
    """One of the scenarios of the thesis, with what its pictures are drawn from."""

    figures: SettingFigures
    latency_ms: tuple[float, ...]
    """The latencies of all runs."""
    request_s: tuple[float, ...]
    """When each of the first ones was asked for: those of the first run."""
    memory: MemorySeries
    """Of the first run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One value of a sweep."""

    value: float
    """The share of the memory that is wanted, or the swappiness."""
    figures: SettingFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class LatdExperimentResult(ExperimentResult):
    """All that was measured so far."""

    scenarios: Mapping[str, ScenarioFigures]
    """Name of a scenario -> what was found; those without a finished run are left out."""
    utilisation: Mapping[str, tuple[SweepPoint, ...]]
    """Name of a hog -> the latency against the share of the memory that is wanted."""
    swappiness: tuple[SweepPoint, ...]
    not_counted: str = ""
    """Why page-cache lookups were not counted; empty if they were."""
