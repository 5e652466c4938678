"""One child of the guardian: starting it, ending it, and the delay before it is started again."""

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
from stallward.actuator.runtime.process_start import SAFE_IMPORTS, command_line

YOUNG_S: Final = 2.0
"""If a process dies younger than this, the delay before the next start is doubled."""
_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything that is needed to start a child."""

    module: str
    """The Python module that it runs."""
    options: object
    """A frozen dataclass, for :func:`stallward.actuator.runtime.process_start.read_options`."""
    fds: tuple[int, ...]
    """The descriptors that it inherits."""
    handed_over: tuple[socket.socket, ...] = ()
    """Sockets that the guardian closes once the child has them."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables in addition to those of this process."""


@dataclass(slots=True, kw_only=True)
class Child:
    """One process of the daemon."""

    name: str
    launch: Callable[[], Launch]
    """Called at every start."""
    policy: RestartConfig
    """When to start it again after a death."""
    vital: bool = True
    """Whether the daemon gives up if it dies too often."""
    process: subprocess.Popen[bytes] | None = None
    pidfd: int = -1
    due_s: float | None = None
    """When it is to be started again, CLOCK_MONOTONIC; ``None`` if no start is planned."""
    restarts: int = 0
    """How often it was started again, counting a start that is planned."""
    started_s: float = 0.0
    """When it was last started, CLOCK_MONOTONIC."""
    _delay_s: float = 0.0
    _deaths: deque[float] = field(default_factory=deque)

    def start(self, now_s: float) -> None:
        """Start the process.

        Raises:
            OSError: If there is no room for another process or descriptor; then none runs.
        """
        self.started_s, self.due_s = now_s, None
        launch = self.launch()
        try:
            process = subprocess.Popen(
                command_line(launch.module, launch.options),
                pass_fds=launch.fds,
                env={**os.environ, **SAFE_IMPORTS, **launch.environment},
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C reaches only the guardian
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
        """The exit status, once the process has ended with all its threads; ``None`` before."""
        if self.process is None:
            return None
        status = self.process.poll()
        if status is not None:
            os.close(self.pidfd)
            self.process, self.pidfd = None, -1
        return status

    def plan_restart(self, now_s: float) -> bool:
        """Choose when to start it again after a death.

        Returns:
            Whether it will be started again; ``False`` if a vital process died too often.
        """
        self._deaths.append(now_s)
        while self._deaths[0] < now_s - _MINUTE_S:
            self._deaths.popleft()
        too_often = len(self._deaths) > self.policy.max_per_minute
        if too_often and self.vital:
            return False
        young = now_s - self.started_s < YOUNG_S
        doubled_s = min(self._delay_s * 2, self.policy.max_delay_s)
        self._delay_s = max(doubled_s, self.policy.delay_s) if young else self.policy.delay_s
        self.restarts += 1
        self.due_s = now_s + (self.policy.max_delay_s if too_often else self._delay_s)
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; does nothing if the process is gone."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def end(
        self, timeout_s: float, *, ask: bool = True, killed: Callable[[], None] | None = None
    ) -> int | None:
        """Stop the process and wait for its end; returns its exit status.

        Args:
            timeout_s: The time after which it is killed with SIGKILL.
            ask: Whether to send SIGTERM first; otherwise it must end by itself.
            killed: Called after SIGKILL was sent and before the process has ended: a thread that
                is stuck in the kernel may delay its end.
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
