"""``none``: leaves the node alone. It is the smallest controller, and the one to copy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controller import Decision, IgnoresTarget, NodeContext
from stallward.agent.desired import RELEASED
from stallward.agent.plugin import ControllerEntry
from stallward.agent.sample import Sample


class NoneController(IgnoresTarget):
    """Wants the node's default, always."""

    name = "none"
    needs_processes = False

    def reset(self, context: NodeContext) -> None:
        """Nothing to forget."""

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Everything running, unlimited and untuned."""
        return Decision(desired=RELEASED, reason="hands off")


ENTRY = ControllerEntry(
    name="none",
    summary="leaves the node alone",
    make=lambda _arguments: NoneController(),
)
