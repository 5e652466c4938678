"""``remote``: leaves the node alone except while a client holds a lease.

A desired state that arrives by ``Apply`` overrides any controller. With this one the node keeps
its defaults between two leases.
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
    """Wants the node's default; clients override it."""

    name = "remote"

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Everything running, unlimited and untuned."""
        return Decision(desired=RELEASED, reason="no lease held")


ENTRY = ControllerEntry(
    name="remote",
    summary="does what a client asks by gRPC Apply, for as long as its lease holds",
    make=lambda _arguments: RemoteController(),
)
