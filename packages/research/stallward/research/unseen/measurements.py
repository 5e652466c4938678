"""A time series store: InfluxDB with the measurements of many machines over one day.

``prepare DIR --groups N --machines N`` makes its files. ``serve DIR --port PORT --ready PATH``
becomes InfluxDB on the loopback address. A query over a group of machines reads blocks of the
mapped files, unpacks them, and makes garbage for Go's collector.
"""

from __future__ import annotations

import random
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.programs import become_server, listens, needed

START_S: Final = 1_700_006_400
"""The first measurement, at the beginning of a day, which is what one shard has."""
DATABASE: Final = "node"
_STEP_S: Final = 30
_PACKAGE: Final = "influxdb"
_LONGEST_S: Final = 300.0

_CONFIGURATION: Final = """\
reporting-disabled = true
bind-address = "127.0.0.1:{other_port}"
[meta]
dir = "{folder}/meta"
[data]
dir = "{folder}/data"
wal-dir = "{folder}/wal"
query-log-enabled = false
cache-max-memory-size = "4g"
cache-snapshot-write-cold-duration = "2s"
[http]
bind-address = "127.0.0.1:{port}"
log-enabled = false
[monitor]
store-enabled = false
[subscriber]
enabled = false
[retention]
enabled = false
[logging]
level = "error"
"""


def lines(*, groups: int, machines: int, count: int, seed: int) -> Iterator[str]:
    """Generate the measurements in InfluxDB's protocol of lines, one text for each group."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    times = range(START_S, START_S + count * _STEP_S, _STEP_S)
    for group in range(groups):
        yield "".join(
            f"load,g={group:04d},m={machine} v={rng.random()} {time_s}\n"
            for machine in range(machines)
            for time_s in times
        )


def _command(folder: Path, place: Path, port: int) -> list[str]:
    """Return the command line of the server, and write its configuration into ``place``."""
    path = place / "influxdb.conf"
    text = _CONFIGURATION.format(folder=folder, port=port, other_port=port + 1)
    path.write_text(text, encoding="utf-8")
    return [needed("influxd", _PACKAGE), "-config", str(path)]


def _post(port: int, action: str, body: str, **fields: str) -> None:
    url = f"http://127.0.0.1:{port}/{action}?{urllib.parse.urlencode(fields)}"
    with urllib.request.urlopen(url, body.encode(), timeout=_LONGEST_S) as reply:
        reply.read()


def prepare(
    folder: Path,
    /,
    *,
    groups: int = 100,
    machines: int = 20,
    count: int = 2880,
    seed: int = 1,
    port: int = 28087,
) -> None:
    """Make the store below ``folder``.

    Raises:
        SystemExit: If InfluxDB is not installed or does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(_command(folder, folder, port), stderr=subprocess.DEVNULL) as server:
        try:
            if not listens(port):
                sys.exit(f"nobody listens on port {port}")
            _post(port, "query", "", q=f"CREATE DATABASE {DATABASE}")
            for text in lines(groups=groups, machines=machines, count=count, seed=seed):
                _post(port, "write", text, db=DATABASE, precision="s")
        finally:
            server.terminate()


def serve(folder: Path, /, *, ready: Path, port: int = 28086) -> None:
    """Replace this process by the server."""
    become_server(_command(folder, ready.parent, port), port=port, ready=ready)


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve)
