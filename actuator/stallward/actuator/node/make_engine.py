"""The engine of a node, with the controllers that its configuration names."""

from __future__ import annotations

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.engine.engine import Engine
from stallward.actuator.node.node import Node
from stallward.agent.controller import Controller, PolicyController
from stallward.agent.registry import make_controller


def make_engine(
    config: DaemonConfig, node: Node, controller: Controller, own_pids: frozenset[int]
) -> Engine:
    """Make the engine; a policy is watched by the default controller until it is switched on.

    Args:
        config: The configuration.
        node: The node.
        controller: The controller that ``control.controller`` names.
        own_pids: The processes of the daemon.

    Raises:
        ControllerError: If a controller needs what the node lacks.
    """
    default = config.control.fallback_controller
    configured = (
        make_controller(default) if isinstance(controller, PolicyController) else controller
    )
    return Engine(
        settings=node.settings(own_pids), configured=configured, default=make_controller(default)
    )
