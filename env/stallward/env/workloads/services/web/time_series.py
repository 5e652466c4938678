"""A time series store: Prometheus with the loads of many machines over two hours.

``prepare DIR --groups N --machines N`` makes its files. ``serve DIR --port PORT --ready PATH``
becomes Prometheus on the loopback address. A query over a group of machines reads pieces of the
mapped files, and makes garbage for Go's collector.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.programs import become_server, needed, run

START_S: Final = 1_700_006_400
"""The first sample. A multiple of two hours, which is what one block of the store has."""
_STEP_S: Final = 15
_PACKAGE: Final = "prometheus"


def samples(*, groups: int, machines: int, count: int, seed: int) -> Iterator[str]:
    """Generate ``count`` samples for each machine of each group, in the format OpenMetrics."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    times = range(START_S, START_S + count * _STEP_S, _STEP_S)
    yield "# TYPE load gauge\n"
    for group in range(groups):
        for machine in range(machines):
            labels = f'load{{g="{group:04d}",m="{machine}"}}'
            yield "".join(f"{labels} {rng.random()} {time_s}\n" for time_s in times)
    yield "# EOF\n"


def prepare(
    folder: Path, /, *, groups: int = 240, machines: int = 100, count: int = 480, seed: int = 1
) -> None:
    """Make the store below ``folder``.

    Raises:
        SystemExit: If Prometheus is not installed or fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "samples"
    with text.open("w", encoding="ascii") as file:
        file.writelines(samples(groups=groups, machines=machines, count=count, seed=seed))
    command = [needed("promtool", _PACKAGE), "tsdb", "create-blocks-from", "openmetrics"]
    run([*command, str(text), str(folder / "store")])
    text.unlink()
    (folder / "prometheus.yml").write_text("global: {}\n", encoding="ascii")


def serve_command(folder: Path, *, port: int) -> list[str]:
    """Return the command line of the server.

    Raises:
        SystemExit: If Prometheus is not installed.
    """
    return [
        needed("prometheus", _PACKAGE),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'store'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]


def serve(folder: Path, /, *, ready: Path, port: int = 28090) -> None:
    """Replace this process by the server."""
    become_server(serve_command(folder, port=port), port=port, ready=ready)


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve)
