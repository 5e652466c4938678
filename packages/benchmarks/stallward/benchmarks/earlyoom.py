"""earlyoom run beside the daemon: the cost and the actions of another daemon on the same pressure.

It runs with ``--dryrun``, so it only reports its actions. It watches the memory of the whole
machine, so it does not notice pressure in a sandbox, which is a result, too.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from typing import Final, Self

import psutil

_MIB: Final = 1 << 20
_ACTION: Final = re.compile(r"sending SIG(TERM|KILL) to process")
"""The second of two lines about an action. At its start it says when it is "sending SIGTERM"."""
_STOP_S: Final = 5.0


class Earlyoom:
    """A context manager that runs earlyoom, if it is installed."""

    def __init__(self) -> None:
        self.cpu_share: float | None = None
        """Share of one core that it used while it ran."""
        self.rss_mib: float | None = None
        """Its resident memory."""
        self.actions: int | None = None
        """How often it would have terminated a process."""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        command = shutil.which("earlyoom")
        if command is not None:
            self._process = subprocess.Popen(
                [command, "--dryrun", "-r", "0"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self._started_s = time.monotonic()
        return self

    def __exit__(self, *_reason: object) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            usage = psutil.Process(process.pid)
            times = usage.cpu_times()
            ran_s = time.monotonic() - self._started_s
            self.cpu_share = (times.user + times.system) / ran_s
            self.rss_mib = usage.memory_info().rss / _MIB
        process.terminate()
        try:
            output, _ = process.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        self.actions = len(_ACTION.findall(output))
