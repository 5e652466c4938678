"""Reading the configuration again while the daemon runs, because SIGHUP asks for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import load_config
from stallward.actuator.config.profiles import with_profiles
from stallward.actuator.config.reload import check_reload
from stallward.actuator.guardian.sd_notify import Notifier
from stallward.actuator.runtime.stderr_line import say
from stallward.agent.errors import StallwardError


class GoOnWith(Protocol):
    """Has the daemon's processes go on with another configuration."""

    def __call__(self, config: DaemonConfig, *, target_changed: bool) -> None:
        """Go on with ``config``."""


class Reload:
    """The configuration that is in force, and the file that it may be read from again.

    Args:
        config: The configuration in force.
        path: The file; ``None`` if SIGHUP is not to read one.
        go_on_with: Puts another configuration in force.
        notifier: The connection to the service manager.
    """

    def __init__(
        self,
        config: DaemonConfig,
        path: Path | None,
        go_on_with: GoOnWith,
        notifier: Notifier,
    ) -> None:
        self._config = config
        self._path = path
        self._go_on_with = go_on_with
        self._notifier = notifier
        self._asked = False

    def ask(self) -> bool:
        """Ask for it, from a signal handler; returns whether there is a file to read."""
        self._asked = self._path is not None
        return self._asked

    def run(self) -> None:
        """Read the file if that was asked for. What cannot be put in force changes nothing."""
        asked, self._asked = self._asked, False
        if not asked or self._path is None:
            return
        self._notifier.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            config = with_profiles(load_config(self._path))
            check_reload(self._config, config)
        except StallwardError as error:
            say(f"not reloaded: {error}")
        else:
            target_changed = config.control.slo_ms != self._config.control.slo_ms
            self._config = config
            self._go_on_with(config, target_changed=target_changed)
            say("reloaded the configuration")
        self._notifier.send("READY=1")
