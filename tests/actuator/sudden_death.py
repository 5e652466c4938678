"""The death of a guardian and its loop at once, so that neither undoes anything."""

from __future__ import annotations

import os
import signal

from stallward.actuator.client.daemon_process import DaemonPids


def kill_guardian_and_loop(pids: DaemonPids) -> None:
    """Kill both so that neither sees the other die.

    The guardian dies last, stopped before the loop is killed. The other way round would be a race:
    the death of the guardian makes the process group of the loop an orphan, and the kernel then
    continues what is stopped in it (setpgid(2)).
    """
    assert pids.loop is not None
    os.kill(pids.guardian, signal.SIGSTOP)
    os.kill(pids.loop, signal.SIGKILL)
    os.kill(pids.guardian, signal.SIGKILL)
