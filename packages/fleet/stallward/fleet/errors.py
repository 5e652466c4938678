"""The errors of many nodes.

The class tree::

    ActuatorError
    ├── RolloutError           a rollout cannot be begun or gone on with
    └── DaemonError
        ├── FleetError         some of many daemons cannot do what was asked of all
        └── DiscoveryError     the nodes of a fleet cannot be looked up
"""

from __future__ import annotations

from stallward.actuator.errors import ActuatorError, DaemonError


class RolloutError(ActuatorError):
    """Raised when a rollout to many nodes cannot be begun, continued or kept on the disk."""


class FleetError(DaemonError):
    """Raised when some of many daemons cannot do what was asked of all."""


class DiscoveryError(DaemonError):
    """Raised when the nodes of a fleet cannot be looked up."""
