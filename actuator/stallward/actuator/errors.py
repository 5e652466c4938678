"""The errors of the actuator.

Their classes form a tree::

    ActuatorError                  something on the node that the user can act on
    ├── NodeError                  this machine lacks something that is needed
    ├── KernelFileError            a file of the kernel could not be read, parsed or written
    │   └── SensorError            ... while reading signals
    │       └── PartlyReadError    ... of which the others could be read
    ├── ProcessError               the memory of a process cannot be watched
    │   └── ProcessEndedError      ... because the process has ended
    ├── GroupError                 a cgroup name is refused, or an operation failed
    │   ├── GroupGoneError         the cgroup vanished
    │   └── KubeletGroupError      the kubelet sets the cgroup itself
    ├── LeverError                 a lever cannot be moved
    │   ├── ForeignError           ... because another program has changed the setting
    │   └── NotTakenError          ... to the value written: the kernel took another one
    ├── JournalError               the journal of original settings cannot be kept
    ├── FramesError                a frames file cannot be read or written
    ├── ConfigError                a configuration cannot be used
    ├── OptionsError               a process was started with options that it cannot use
    ├── PolicyStoreError           a policy cannot be taken or found in the store
    │   ├── PolicyPartError        ... because a part does not begin where the last one ended
    │   ├── PolicyDamagedError     ... because its content has another digest
    │   └── PolicyDiskError        ... because the store cannot be read or written
    ├── ExperimentError            an experiment cannot be started or stopped
    │   └── ExperimentDiskError    ... because it cannot be kept or read
    ├── WorkError                  the work of a slot cannot be read now
    ├── GuardError                 the guard refuses a request
    └── DaemonError                the daemon could not be started, reached or stopped
        ├── DaemonUnavailableError   no daemon answers, or its loop is restarting
        ├── LeaseHeldError           another client holds the lease
        └── RequestError             the daemon refuses a request
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stallward.agent.errors import StallwardError
from stallward.agent.sample import WorkFault


class ActuatorError(StallwardError):
    """Something on the node went wrong that the user can act on."""


class NodeError(ActuatorError):
    """Raised when this machine lacks something that is needed (PSI, a controller, a right)."""


class KernelFileError(ActuatorError):
    """Raised when a file of the kernel could not be read, parsed or written.

    Args:
        path: The file.
        cause: What happened, without the path.
        next_step: What the user can do.
        number: The errno where there is one, else 0.
    """

    def __init__(
        self, path: Path | str, cause: str, *, next_step: str = "", number: int = 0
    ) -> None:
        super().__init__(f"{path}: {cause}", next_step=next_step)
        self.path = Path(path)
        self.what = cause
        """What happened, without the path."""
        self.number = number


class SensorError(KernelFileError):
    """Raised when a signal exists but cannot be read or understood."""


class PartlyReadError(SensorError):
    """Raised when some signals of a file cannot be understood, and the others can.

    Args:
        path: The file.
        what: What is wrong with which of them, without the path.
        value: What the file says otherwise; the others are ``None`` in it.
        lost: The names of the signals that cannot be understood.
    """

    def __init__(
        self, path: Path | str, what: str, *, value: Any = None, lost: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(path, what)
        self.value = value
        self.lost = lost


class ProcessError(ActuatorError):
    """Raised when the memory of a process cannot be watched."""


class ProcessEndedError(ProcessError):
    """Raised when a process that is watched has ended, or another one has its pid now."""


class GroupError(ActuatorError):
    """Raised when a cgroup name is refused or an operation on a cgroup failed."""


class GroupGoneError(GroupError):
    """Raised when a cgroup that is needed has vanished."""


class KubeletGroupError(GroupError):
    """Raised when a slot would be a cgroup that the kubelet sets itself."""


class LeverError(ActuatorError):
    """Raised when a lever cannot be moved."""


class KillsAgainError(LeverError):
    """Raised when another program lets the kernel kill in a group that a limit holds."""


class ForeignError(LeverError):
    """Raised when another program has changed a setting that the daemon held.

    Args:
        cause: What happened.
        next_step: What the user can do.
        value: The setting's value now.
    """

    def __init__(self, cause: str, *, next_step: str = "", value: str = "") -> None:
        super().__init__(cause, next_step=next_step)
        self.value = value


class NotTakenError(LeverError):
    """Raised when the kernel took another value than was written; it is held all the same."""


class PolicyStoreError(ActuatorError):
    """Raised when a policy cannot be taken into the store of the node, or found there."""


class PolicyPartError(PolicyStoreError):
    """Raised when a part of a policy does not begin where the last one ended."""


class PolicyDamagedError(PolicyStoreError):
    """Raised when the content of a policy has another digest than was announced."""


class PolicyDiskError(PolicyStoreError):
    """Raised when the store of policies cannot be read or written."""


class ExperimentError(ActuatorError):
    """An experiment cannot be started or stopped."""


class ExperimentDiskError(ExperimentError):
    """An experiment cannot be kept or read."""


class JournalError(ActuatorError):
    """Raised when the journal of original settings cannot be kept or read."""


class FramesError(ActuatorError):
    """Raised when a frames file cannot be read or written."""


class ConfigError(ActuatorError):
    """Raised when a configuration cannot be used."""


class OptionsError(ActuatorError):
    """Raised when a process is started with options that it cannot use."""


class WorkError(ActuatorError):
    """Raised when the work of a slot cannot be read now; the cause follows the source's name.

    Args:
        cause: What happened.
        fault: Its kind.
        next_step: What a person can do about it.
    """

    def __init__(
        self, cause: str, *, fault: WorkFault = WorkFault.FAILED, next_step: str = ""
    ) -> None:
        super().__init__(cause, next_step=next_step)
        self.fault = fault


class GuardError(ActuatorError):
    """Raised when the guard refuses a request."""


class DaemonError(ActuatorError):
    """Raised when the daemon cannot be started, reached or stopped."""


class DaemonUnavailableError(DaemonError):
    """Raised when no daemon answers, or its loop is restarting: try again."""


class LeaseHeldError(DaemonError):
    """Raised when another client holds the lease."""


class RequestError(DaemonError):
    """Raised when the daemon refuses a request; the message says why."""
