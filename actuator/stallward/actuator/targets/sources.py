"""The package that follows targets whose groups come and go, such as pods; found by entry points.

Those of the group ``stallward.targets`` are of the daemon's own environment, and read only where the
configuration has such targets:

* ``pods``: the module of the process that follows them. The guardian starts it with
  :class:`~stallward.actuator.targets.config.PodsOptions`, and it tells the loop by the messages of
  :mod:`stallward.actuator.targets.messages`.
* ``pods.doctor``: what ``stallward doctor`` looks at; see :mod:`stallward.actuator.doctor.finding`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stallward.actuator.errors import ConfigError
from stallward.agent.believed_file import check_module, installed_points

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

TARGETS_GROUP: Final = "stallward.targets"


def not_installed() -> ConfigError:
    """The error that says what to install."""
    return ConfigError(
        "The configuration names pods, and what follows them is not installed.",
        next_step="Run `pip install 'stallward[kubernetes]'`.",
    )


def target_point(name: str) -> EntryPoint | None:
    """The entry point of a name; ``None`` if no package has it.

    Raises:
        UnbelievedFileError: For root, if others can write its module.
    """
    point = installed_points(TARGETS_GROUP).get(name)
    if point is not None:
        check_module(point.module)
    return point


def follower_of_pods() -> str:
    """The module of the process that follows pods.

    Raises:
        ConfigError: If no package is installed that has one.
        UnbelievedFileError: For root, if others can write it.
    """
    point = target_point("pods")
    if point is None:
        raise not_installed()
    return point.module
