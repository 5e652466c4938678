"""The engine of a node, with the controllers that its configuration names."""

from __future__ import annotations

from collections.abc import Callable

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.engine.engine import Engine
from stallward.actuator.node.node import Node
from stallward.agent.controller import Controller, PolicyController

MakeController = Callable[[str], Controller]
"""Makes a controller of its specification; raises ``ControllerError`` if there is none."""


def make_engine(
    config: DaemonConfig,
    node: Node,
    controller: Controller,
    make: MakeController,
    own_pids: frozenset[int],
) -> Engine:
    """Make the engine; a policy is watched by the default controller until it is switched on.

    Args:
        config: The configuration.
        node: The node.
        controller: The controller that ``control.controller`` names.
        make: Makes the default controller.
        own_pids: The processes of the daemon.

    Raises:
        ControllerError: If a controller needs what the node lacks.
    """
    default = config.control.fallback_controller
    configured = make(default) if isinstance(controller, PolicyController) else controller
    return Engine(settings=node.settings(own_pids), configured=configured, default=make(default))
