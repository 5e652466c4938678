"""Stands in for systemd before systemd-oomd: says which groups of a sandbox it manages.

systemd-oomd connects to a socket of systemd and asks in varlink, which is JSON objects with a
zero byte after each. It gets one reply at once, and another one whenever a unit changes. A sandbox
has no units, so there is one reply. The connection stays open; systemd-oomd would connect anew.

systemd-oomd refuses a reply of a process that it does not see, so this is a program of its own,
which runs in the same PID namespace: ``python -m stallward.env.sandbox.peers.managed_groups``.

The zone is managed as Debian's packages have it: killed in for memory pressure as user sessions
are, and for swap as everything is. A group is spared as ``ManagedOOMPreference=omit`` has it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.env.errors import WorkloadError

MANAGED_SOCKET: Final = Path("/run/systemd/io.system.ManagedOOM")
"""Where systemd listens for systemd-oomd."""
_METHOD: Final = "io.systemd.ManagedOOM.SubscribeManagedOOMCGroups"
_PRESSURE_PERCENT: Final = 50.0
"""``ManagedOOMMemoryPressureLimit`` of user@.service, the one group that Debian has managed so."""
_WHOLE: Final = (1 << 32) - 1
"""What systemd writes for 100 %."""
_MOST_BYTES: Final = 1 << 16
"""The longest call that is read."""
_PATIENCE_S: Final = 10.0
"""How long a caller may take with its call, and with its reply."""


class ManagedGroups:
    """The service of systemd that systemd-oomd asks, on a socket: a context manager.

    It listens when it has been made, and a thread answers whoever connects.

    Args:
        path: The socket, which is made.
        zone: The name of the group that is managed.
        percent: In which share of the time all may wait for memory in it.

    Raises:
        WorkloadError: If the socket cannot be made.
    """

    def __init__(self, path: Path, zone: str, percent: float = _PRESSURE_PERCENT) -> None:
        self._path, self._zone, self._percent = path, zone, percent
        self._open: list[socket.socket] = []
        self._closing = False
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            # It is there for others only when it can be connected to.
            new = f"{path}.new"
            self._socket.bind(new)
            self._socket.listen()
            Path(new).rename(path)
        except OSError as error:
            self._socket.close()
            raise WorkloadError(
                f"Cannot listen at {path} for systemd-oomd: {error.strerror or error}.",
                next_step="Leave the peer out, or use a shorter or writable state folder.",
            ) from error
        self._thread = threading.Thread(target=self._serve, name="managed-groups", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """Return itself: it listens already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self.close()

    def close(self) -> None:
        """End all connections and remove the socket."""
        self._closing = True
        for one in (self._socket, *self._open):
            with contextlib.suppress(OSError):  # the other side was first
                one.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for one in (self._socket, *self._open):
            one.close()
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        """Answer one caller after the other; each is served in a moment and then kept."""
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:  # it was closed
                return
            caller.settimeout(_PATIENCE_S)
            self._open.append(caller)
            if self._closing:  # perhaps close() did not see this caller
                return
            with contextlib.suppress(OSError):  # who leaves needs no reply
                caller.sendall(reply(_read(caller), self._zone, self._percent))


def _read(caller: socket.socket) -> bytes:
    """The first call of a caller, without the zero byte; what there is of it if it leaves."""
    got = b""
    while b"\0" not in got and len(got) < _MOST_BYTES:
        part = caller.recv(4096)
        if not part:
            break
        got += part
    return got.partition(b"\0")[0]


def reply(call: bytes, zone: str, percent: float) -> bytes:
    """What systemd answers to a call, if ``zone`` is the one group that it has managed.

    Args:
        call: The call.
        zone: The name of the group.
        percent: The share of the time in which all may wait for memory in it.
    """
    try:
        asked = json.loads(call)
    except ValueError:
        asked = None
    method = asked.get("method") if isinstance(asked, dict) else None
    if not isinstance(asked, dict) or method != _METHOD:
        return _framed(
            {"error": "org.varlink.service.MethodNotFound", "parameters": {"method": str(method)}}
        )
    path = f"/{zone}"
    pressure = {
        "mode": "kill",
        "path": path,
        "property": "ManagedOOMMemoryPressure",
        "limit": round(percent / 100 * _WHOLE),
    }
    swap = {"mode": "kill", "path": path, "property": "ManagedOOMSwap"}
    return _framed({"parameters": {"cgroups": [pressure, swap]}, "continues": True})


def _framed(message: dict[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\0"


def service_argv(python: str, path: Path, zone: Cgroup) -> tuple[str, ...]:
    """The command of the program that stands in for systemd.

    Args:
        python: The interpreter.
        path: The socket, which the program makes.
        zone: The group that is managed.
    """
    return (python, "-P", "-m", __name__, str(path), zone.name, str(_PRESSURE_PERCENT))


def spare(*groups: Cgroup) -> None:
    """Have systemd-oomd kill nothing in groups, as ``ManagedOOMPreference=omit`` does.

    Raises:
        WorkloadError: If the kernel does not keep the mark.
    """
    for group in groups:
        try:
            os.setxattr(group.unified_dir or "", "user.oomd_omit", b"1")
        except OSError as error:
            raise WorkloadError(
                f"Cannot spare the group {group.name} from systemd-oomd: "
                f"{error.strerror or error}.",
                next_step="Leave the peer out, or use Linux 5.7 or newer.",
            ) from error


def main(arguments: Sequence[str]) -> None:
    """Stand in for systemd until it is killed: the socket, the zone and the limit in per cent."""
    path, zone, percent = arguments
    with ManagedGroups(Path(path), zone, float(percent)):
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
