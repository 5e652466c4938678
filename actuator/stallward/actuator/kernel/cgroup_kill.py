"""Killing everything in a cgroup, and saying what is left."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, Final

from stallward.actuator.errors import GroupError, KernelFileError
from stallward.actuator.kernel.files import write_text

if TYPE_CHECKING:
    from stallward.actuator.kernel.cgroups import Cgroup

_RETRY_S: Final = 0.02


def kill_all(group: Cgroup, timeout_s: float) -> tuple[int, ...]:
    """Kill everything in ``group`` and below it; see :meth:`Cgroup.kill`."""
    if group.is_root or os.getpid() in _members(group):
        raise GroupError(f"Refusing to kill the group {group.name or '/'}: this process is in it.")
    deadline_s = time.monotonic() + timeout_s
    while True:
        if group.unified_dir is not None:
            with contextlib.suppress(KernelFileError):  # before kernel 5.14: pid by pid
                write_text(group.unified_dir / "cgroup.kill", "1")
        left = _members(group)
        if not left and not group.populated():
            return ()
        for pid in left:
            _kill_member(group, pid)
        if time.monotonic() >= deadline_s:
            break
        time.sleep(_RETRY_S)
    left = _members(group)
    if not left and group.populated():
        raise GroupError(
            f"Cannot kill the group {group.name}: it holds processes that cannot be named.",
            next_step="They run in another pid namespace: end the container that they are of.",
        )
    return left


def _members(group: Cgroup) -> tuple[int, ...]:
    try:
        return group.pids(recursive=True)
    except KernelFileError as error:
        raise GroupError(
            f"Cannot kill the group {group.name}: {error.cause}.", next_step=error.next_step
        ) from error


def _kill_member(group: Cgroup, pid: int) -> None:
    """SIGKILL ``pid`` if it is still in ``group``: a recycled pid is never hit."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # The descriptor pins the process; only now is its membership checked again.
        if pid in _members(group):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
    finally:
        os.close(fd)
