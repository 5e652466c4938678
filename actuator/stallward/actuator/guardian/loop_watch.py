"""Whether the loop lives: its heartbeats, and what the service manager is told of them."""

from __future__ import annotations

import time
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.guardian.sd_notify import Notifier
from stallward.actuator.ipc.channels import SILENCE_S

_SILENT_PERIODS: Final = 3.0
"""A loop whose ticks are far apart may be silent for so many of them."""
_START_S: Final = 15.0
"""How long a loop may take from its start to its first tick, on a starving node."""


class LoopHealth:
    """When the loop was heard last.

    Args:
        config: Says how far apart ticks are, and how long a restart may be put off.
        notifier: The service manager.
    """

    def __init__(self, config: DaemonConfig, notifier: Notifier) -> None:
        self.silence_s = max(SILENCE_S, _SILENT_PERIODS * config.control.slowest_tick_s)
        self._notifier = notifier
        self._heard_s: float | None = None
        self._ready = False
        # A loop that hangs, is killed and started again must not trip the watchdog.
        notifier.allow(self.silence_s + config.restart.max_delay_s + _START_S)

    @property
    def ticking(self) -> bool:
        """Whether the loop that runs now has ticked."""
        return self._heard_s is not None

    @property
    def due_s(self) -> float | None:
        """When the loop counts as hung if it is not heard before."""
        return None if self._heard_s is None else self._heard_s + self.silence_s

    def beat(self) -> None:
        """The loop says that it has ticked."""
        self._heard_s = time.monotonic()
        if not self._ready:
            self._ready = True
            self._notifier.send("READY=1")
        self._notifier.status("The loop ticks.")
        self._notifier.feed()

    def heard(self) -> None:
        """A ticking loop sent something else: it lives."""
        if self._heard_s is not None:
            self._heard_s = time.monotonic()

    def forget(self, why: str) -> None:
        """The loop is dead, or will be."""
        self._heard_s = None
        self._notifier.status(why)

    def hung(self, now_s: float) -> bool:
        """Whether a ticking loop has been silent for too long."""
        return self._heard_s is not None and now_s - self._heard_s > self.silence_s
