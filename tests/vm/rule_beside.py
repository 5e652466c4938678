"""A published rule that watches a zone beside the program that it is of, with its killing off."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pressed_zone import wait_for

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.node.node import Node
from stallward.agent.controller import NodeContext
from stallward.agent.registry import make_controller

TICK_S = 0.1


class RuleBeside:
    """Samples a zone, and asks the rule what it would do.

    Args:
        spec: The rule, with ``kill=0``.
        zone: The zone's group.
        protected: The name of the application's group in it.
        slots: The names of the background groups in it.
        limit_bytes: The zone's limit.
        folder: An empty folder.
    """

    def __init__(
        self,
        spec: str,
        *,
        zone: str,
        protected: str,
        slots: tuple[str, ...],
        limit_bytes: int,
        folder: Path,
    ) -> None:
        config = DaemonConfig(
            node=NodeConfig(zone=zone),
            protected=ProtectedConfig(group=f"{zone}/{protected}"),
            background=tuple(SlotConfig(name=name, group=f"{zone}/{name}") for name in slots),
            service=ServiceConfig(socket=folder / "s.sock"),
            journal=JournalConfig(path=folder / "journal"),
            control=ControlConfig(controller="none", tick_period_s=TICK_S),
        )
        self._node = Node(config, lambda *_: None)
        self._rule = make_controller(spec)
        self._rule.reset(NodeContext(zone_limit_bytes=limit_bytes, slot_names=slots))
        self._sequence = 0
        self.said: list[str] = []
        """The groups that it would have killed, each once, in order."""

    def tick(self) -> None:
        """Look once."""
        sample = self._node.read(self._sequence, time.monotonic())
        self._sequence += 1
        reason = self._rule.decide(sample, np.zeros(0, np.float32)).reason
        if "would kill" in reason:
            victim = reason.partition("would kill ")[2]
            if victim not in self.said:
                self.said.append(victim)

    def until(self, done: Callable[[], bool]) -> bool:
        """Look again and again until ``done``; returns whether it became true."""

        def look() -> bool:
            self.tick()
            return done()

        return wait_for(look, timeout_s=120.0)

    def close(self) -> None:
        """Let the node go."""
        assert self._node.close(), "not everything was restored"
