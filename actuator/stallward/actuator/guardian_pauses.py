"""The guardian's own eye on pauses: the loop ends each in time, or is ended itself.

The loop cannot look at the clock while a controller of somebody else's thinks. A decision that
takes seconds would let a pause go on that no budget allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stallward.actuator.guard.budgets import Budgets

SPARE_S: Final = 0.5
"""How much later than a tick may be the loop is waited for: ending it costs more than a tick."""


class PauseLimit:
    """Until when the loop that runs now must have ended its pauses.

    Args:
        budgets: Says how long a pause may be, and how late a tick.
    """

    def __init__(self, budgets: Budgets) -> None:
        self._longest_s = budgets.max_pause_s + budgets.late_allowance_s + SPARE_S
        self._lifted = budgets.lift_budgets

    def due_s(self, since_s: Sequence[float], started_s: float) -> float | None:
        """When the first pause will have lasted too long; ``None`` if there is none.

        Args:
            since_s: Since when the loop keeps each slot paused, CLOCK_MONOTONIC; 0 if it does not.
            started_s: When it was started: what is older is not its own.
        """
        own = [since for since in since_s if since >= started_s > 0.0]
        return None if self._lifted or not own else min(own) + self._longest_s
