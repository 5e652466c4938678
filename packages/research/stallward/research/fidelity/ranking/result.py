"""The result of a ranking: the content of ``ranking.json``. Unknown values are ``None``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from stallward.agent.schema.marks import Flat
from stallward.evaluation.results.interval import Interval
from stallward.research.fidelity.result import JudgedTarget

SCHEMA: Final = 1
Measure = Literal["p99", "background work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedArm:
    """An arm, live and on the twin."""

    arm: str
    """The arm's label."""
    live_p99_ms: float | None
    twin_p99_ms: float | None
    live_work: float | None
    twin_work: float | None
    p99_error: float | None
    """``|ln(twin / live)|`` of the p99."""
    work_error: float | None
    """The same of background work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongEffect:
    """An effect that is certain live and has another sign on the twin."""

    measure: Measure
    """What the arms were compared by."""
    arm: str
    against: str
    live: Interval
    """The arm over the other, live."""
    twin: float | None
    """The same on the twin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioRanking:
    """The arms of one scenario, which were compared live and on its twin."""

    fitted: bool | None
    """Whether the twin was fitted to recordings of the scenario; ``None`` if that is unknown."""
    arms: tuple[RankedArm, ...]
    """The arms that both comparisons have."""
    p99_spearman: float | None
    """Rank correlation of p99 over the arms."""
    work_spearman: float | None
    """Rank correlation of background work."""
    effects_right: int
    """How many certain effects have the right sign on the twin."""
    effects_counted: int
    """How many differences between two arms are certain live."""
    wrong: tuple[WrongEffect, ...]
    """The certain effects with another sign on the twin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingSummary:
    """The summary over all scenarios."""

    rank_signs_right: float | None
    """Share of the certain effects, on p99 and on background work, whose sign is right."""
    rank_signs_counted: int
    """How many certain effects there are."""
    p99_spearman_median: float | None
    p99_spearman_worst: float | None
    work_spearman_median: float | None
    work_spearman_worst: float | None
    unseen_p99_error_median: float | None
    """The median error of p99 over all arms of scenarios that no fit has seen."""
    unseen_work_error_median: float | None
    """The same of background work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingResult:
    """The whole result."""

    schema: int = SCHEMA
    """Version of the file."""
    scenarios: Mapping[str, ScenarioRanking]
    """Name of a scenario -> its ranking."""
    alone: tuple[str, ...]
    """Comparisons that were given for one side only, or arms that one side lacks."""
    summary: Flat[RankingSummary]
    """The summary over all scenarios."""
    targets: Mapping[str, JudgedTarget]
    """Key of a figure of the summary -> the figure with its target."""
