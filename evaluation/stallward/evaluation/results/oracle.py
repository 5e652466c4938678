"""What the search for the best static setting comes to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """The oracle of a live comparison: the static arm that did best.

    Attributes:
        arm: Its label.
        meets_target: Whether it keeps the target; if not, no static arm did, and this one did
            most often.
    """

    arm: str
    meets_target: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedArm:
    """A static setting that is worth comparing live, and what it did on the twin.

    Attributes:
        arm: The setting as an arm of a comparison.
        background_work: Share of the background's full speed.
        violated: Share of windows that missed the target.
    """

    arm: str
    background_work: float
    violated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """The grid of a scenario, tried on its twin.

    Attributes:
        scenario: Which scenario.
        settings: How many settings the grid has.
        allowed: Share of windows that may miss the target.
        arms: The settings to compare live, best first.
        spec: The same settings as ``--arms`` of a comparison takes them.
    """

    scenario: str
    settings: int
    allowed: float
    arms: tuple[ScreenedArm, ...]
    spec: str
