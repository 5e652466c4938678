"""The results of the search for the best static setting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """The oracle of a live comparison: the static arm that did best."""

    arm: str
    """The arm's label."""
    meets_target: bool
    """Whether it keeps the target. If not, no static arm does, and this one does most often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedArm:
    """A static setting that is worth comparing live, with its results on the twin."""

    arm: str
    """The setting as an arm of a comparison."""
    background_work: float
    """Background work as a share of full speed."""
    violated: float
    """Share of windows that missed the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """The result of trying a grid of settings on a scenario's twin."""

    scenario: str
    """Name of the scenario."""
    settings: int
    """How many settings the grid has."""
    allowed: float
    """Share of windows that may miss the target."""
    arms: tuple[ScreenedArm, ...]
    """The settings to compare live, the best first."""
    spec: str
    """The settings as one value for ``--arms``."""
