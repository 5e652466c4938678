"""``remote``: leave the node alone until a client holds a lease.

Desired states that arrive by ``Apply`` override whatever controller is loaded; with this one
nothing else happens between two leases.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controller import Decision
from stallward.agent.controllers.none import NoneController
from stallward.agent.desired import RELEASED
from stallward.agent.plugin import ControllerEntry
from stallward.agent.sample import Sample


class RemoteController(NoneController):
    """Waits for a client."""

    name = "remote"

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Everything running, unlimited and untuned."""
        return Decision(desired=RELEASED, reason="no lease held")


ENTRY = ControllerEntry(
    name="remote",
    summary="does what a client asks by gRPC Apply, for as long as its lease holds",
    make=lambda _arguments: RemoteController(),
)
