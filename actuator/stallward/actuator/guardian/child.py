"""The guardian's children: starting them, and how long to wait before starting them again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from stallward.actuator.config.tables import RestartConfig
from stallward.actuator.runtime.process_start import command_line

YOUNG_S: Final = 2.0
"""A process that dies younger than this is started again more slowly each time."""
_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a child."""

    module: str
    options: object
    """A frozen dataclass, for :func:`stallward.actuator.runtime.process_start.read_options`."""
    fds: tuple[int, ...]
    """Descriptors it inherits."""
    handed_over: tuple[socket.socket, ...] = ()
    """Sockets that are closed here once it has them."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that it has beside those of this process."""


@dataclass(slots=True, kw_only=True)
class Child:
    """One process of the daemon."""

    name: str
    launch: Callable[[], Launch]
    """Called at every start."""
    policy: RestartConfig
    vital: bool = True
    """Whether the daemon gives up when it dies too often."""
    process: subprocess.Popen[bytes] | None = None
    pidfd: int = -1
    due_s: float | None = None
    """When to start it again."""
    restarts: int = 0
    started_s: float = 0.0
    """When it was started last."""
    _delay_s: float = 0.0
    _deaths: deque[float] = field(default_factory=deque)

    def start(self, now_s: float) -> None:
        """Start the process.

        Raises:
            OSError: If there is no room for another process or descriptor; none was started.
        """
        self.started_s, self.due_s = now_s, None
        launch = self.launch()
        try:
            process = subprocess.Popen(
                command_line(launch.module, launch.options),
                pass_fds=launch.fds,
                env={**os.environ, **launch.environment},
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C reaches the guardian alone
            )
        finally:
            for end in launch.handed_over:
                end.close()
        try:
            self.pidfd = os.pidfd_open(process.pid)
        except OSError:
            process.kill()
            process.wait()
            raise
        self.process = process

    def reap(self) -> int | None:
        """The exit status, once the process has ended with all its threads."""
        if self.process is None:
            return None
        status = self.process.poll()
        if status is not None:
            os.close(self.pidfd)
            self.process, self.pidfd = None, -1
        return status

    def plan_restart(self, now_s: float) -> bool:
        """Choose when to start again after a death; False if it died too often."""
        self._deaths.append(now_s)
        while self._deaths[0] < now_s - _MINUTE_S:
            self._deaths.popleft()
        tired = len(self._deaths) > self.policy.max_per_minute
        if tired and self.vital:
            return False
        young = now_s - self.started_s < YOUNG_S
        longer_s = min(self._delay_s * 2, self.policy.max_delay_s)
        self._delay_s = max(longer_s, self.policy.delay_s) if young else self.policy.delay_s
        self.restarts += 1
        self.due_s = now_s + (self.policy.max_delay_s if tired else self._delay_s)
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; harmless if the process is gone."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def end(
        self, timeout_s: float, *, ask: bool = True, killed: Callable[[], None] | None = None
    ) -> int | None:
        """Stop the process and wait, by SIGKILL if it takes longer; returns its status.

        Args:
            timeout_s: How long it may take to end by itself.
            ask: Whether to tell it to.
            killed: Called once it was sent SIGKILL: a thread in the kernel may take it late.
        """
        if self.process is None:
            return None
        if ask:
            self.signal(signal.SIGTERM)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            if killed is not None:
                killed()
            self.process.wait()
        return self.reap()
