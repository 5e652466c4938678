"""Programs of other projects: where they are, running them, becoming one and talking to one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import become

_WAIT_S: Final = 60.0


def needed(program: str, package: str) -> str:
    """Return the path of a program, also of one for administrators.

    Raises:
        SystemExit: If it is not installed; the message names its Debian package.
    """
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        sys.exit(f"{program} is not installed; try `apt-get install {package}`")
    return path


def run(argv: list[str]) -> None:
    """Run a program.

    Raises:
        SystemExit: If it fails, with the end of what it wrote.
    """
    process = subprocess.run(argv, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        sys.exit(f"{argv[0]} failed: {(process.stderr or process.stdout).strip()[-500:]}")


def become_server(
    command: list[str],
    *,
    port: int,
    ready: Path,
    answers: Callable[[int], bool] | None = None,
) -> None:
    """Replace this process by a server on the loopback address.

    Args:
        command: Its command line.
        port: The port that it listens on.
        ready: An empty file that is made once it does.
        answers: Waits until the server on a port answers as it should, and returns whether it does;
            for a server that listens before it has read its data.
    """
    if os.fork() == 0:
        if (answers or listens)(port):
            ready.touch()
        os._exit(0)
    become(command)


def connected(path: Path, *, wait_s: float = 30.0) -> socket.socket:
    """Return a connection to a Unix socket, which may be there before somebody listens.

    Args:
        path: The socket.
        wait_s: How long to wait for that, and later for each answer.

    Raises:
        SystemExit: If nobody listens in that time.
    """
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(wait_s)
    deadline_s = time.monotonic() + wait_s
    while client.connect_ex(str(path)) != 0:
        if time.monotonic() > deadline_s:
            client.close()
            sys.exit(f"nobody answers at {path}")
        time.sleep(0.05)
    return client


def listens(port: int) -> bool:
    """Wait until something listens on a port; return false if nothing does within a minute."""
    deadline_s = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline_s:
        try:
            with socket.create_connection(("127.0.0.1", port)):
                return True
        except ConnectionRefusedError:
            time.sleep(0.05)
    return False
