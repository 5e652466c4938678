"""Runs Debian's MariaDB with its own data folder, and nothing of the machine's configuration.

``prepare DIR --rows N`` makes the folder and a table ``articles`` in the database ``shop``.
``serve DIR --socket PATH --buffers-mib N`` serves it on a Unix socket only. There is no log of
changes on disk to wait for, and no user is asked for a password.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.programs import needed, run

_PACKAGE: Final = "mariadb-server"
_ROWS_AT_ONCE: Final = 100_000
_TEXT_BYTES: Final = 800

_TABLE: Final = f"""
CREATE TABLE articles (
  id INT UNSIGNED PRIMARY KEY, price INT UNSIGNED NOT NULL, text VARCHAR({_TEXT_BYTES}) NOT NULL
) ENGINE=InnoDB CHARACTER SET latin1;
"""
_INSERT: Final = """
INSERT INTO articles
SELECT seq, CRC32(CONCAT('{seed}/', seq)) % 100000, REPEAT(SHA1(CONCAT('{seed}.', seq)), 20)
FROM seq_{first}_to_{last};
"""


def table_script(*, rows: int, seed: int) -> str:
    """Return the SQL that makes and fills the table; its ids are 0 to ROWS - 1."""
    steps = range(0, rows, _ROWS_AT_ONCE)
    inserts = (
        _INSERT.format(seed=seed, first=first, last=min(first + _ROWS_AT_ONCE, rows) - 1)
        for first in steps
    )
    return "".join([_TABLE, *inserts, "ANALYZE TABLE articles;\n"])


def prepare(folder: Path, /, *, rows: int = 250_000, seed: int = 1) -> None:
    """Make the data folder below ``folder`` and fill the table."""
    data, socket = folder / "mysql", folder / "prepare.sock"
    install = [needed("mariadb-install-db", _PACKAGE), "--no-defaults", f"--datadir={data}"]
    run([*install, "--auth-root-authentication-method=normal", "--skip-test-db", _as_user()])
    command = serve_command(folder, socket, buffers_mib=256)
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_ready(socket, server)
        client = [needed("mariadb", _PACKAGE), "--no-defaults", f"--socket={socket}"]
        run([*client, "-e", "CREATE DATABASE shop"])
        run([*client, "shop", "-e", table_script(rows=rows, seed=seed)])
    finally:
        server.terminate()
        server.wait()
    socket.unlink(missing_ok=True)


def serve_command(folder: Path, /, socket: Path, *, buffers_mib: int = 256) -> list[str]:
    """Return the command line of the server. The socket's path appears once it answers."""
    return [
        needed("mariadbd", _PACKAGE),
        "--no-defaults",
        f"--datadir={folder / 'mysql'}",
        f"--socket={socket}",
        f"--pid-file={socket}.pid",
        "--skip-networking",
        "--skip-grant-tables",
        "--skip-log-bin",
        f"--innodb-buffer-pool-size={buffers_mib}M",
        # What was hot in another block must not be: a block starts from the same state.
        "--innodb-buffer-pool-load-at-startup=OFF",
        "--innodb-buffer-pool-dump-at-shutdown=OFF",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-doublewrite=0",
        "--innodb-log-file-size=64M",
        "--innodb-use-native-aio=0",
        "--performance-schema=OFF",
        "--key-buffer-size=1M",
        "--aria-pagecache-buffer-size=1M",
        "--thread-cache-size=16",
        _as_user(),
    ]


def _as_user() -> str:
    """The user to run as: this process's own, who may read the cache in its home."""
    return "--user=root" if os.geteuid() == 0 else f"--user={os.environ.get('USER', '')}"


def _wait_ready(socket: Path, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if socket.exists():
            return
        if server.poll() is not None:
            break
        time.sleep(0.1)
    sys.exit("MariaDB did not start within a minute")


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve_command)
