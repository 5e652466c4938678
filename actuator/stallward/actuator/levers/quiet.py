"""What a lever need not say when there is nothing to say."""

from __future__ import annotations

from stallward.actuator.levers.base.lever import PlannedWrite
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import DesiredState
from stallward.agent.sample import LeverState


class QuietLever:
    """Defaults for levers that are always there, finish at once and have no file to look at."""

    name = ""
    foreign_total = 0

    @property
    def missing(self) -> tuple[str, ...]:
        """It is there."""
        return ()

    @property
    def idle(self) -> bool:
        """Nothing is left to do."""
        return True

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """Nothing takes its time."""
        return ()

    def look(self, now_s: float) -> tuple[LeverResult, ...]:
        """There is no file to look at."""
        return ()

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """Nothing would change."""
        return ()

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """There is nothing to wait for."""
        return ()

    def states(self, now_s: float) -> tuple[LeverState, ...]:
        """Nothing is moved that a sample would tell."""
        return ()
