"""The errors of looking up pods.

The class tree::

    ActuatorError
    ├── PodsError              pods cannot be looked up
    │   └── ApiError           ... because the API server or the kubelet does not give them
    │       ├── ApiGoneError   ... from where a watch was to go on
    │       └── ApiSilentError ... and says nothing at all
    └── KubeletConfigError     it cannot be read what the kubelet of this node is told
"""

from __future__ import annotations

from stallward.actuator.errors import ActuatorError


class PodsError(ActuatorError):
    """Raised when pods cannot be looked up."""


class ApiError(PodsError):
    """Raised when the API server of Kubernetes, or the kubelet, does not give the pods."""


class ApiGoneError(ApiError):
    """Raised when a watch of pods cannot continue, so that they must be listed again."""


class ApiSilentError(ApiError):
    """Raised when a server of the cluster does not answer in time."""


class KubeletConfigError(ActuatorError):
    """Raised when it cannot be read what the kubelet of this node is told."""
