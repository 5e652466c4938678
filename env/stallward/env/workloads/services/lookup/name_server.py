"""A name server: Knot DNS with one large zone, which it keeps in its own memory.

``prepare DIR --names N`` writes the zone file. ``serve DIR --socket PATH --port PORT`` becomes
knotd on the loopback address; PATH is its control socket, which is there once it answers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.programs import needed

ZONE: Final = "shop"
LAST_TEXT: Final = "that was all"
"""The end of every text. By it a client that only knows texts sees that a message is complete."""
_TEXT_BYTES: Final = 200
_ZONE_NAME: Final = "zone"

_CONFIGURATION: Final = """\
server:
    rundir: "{place}"
    listen: "127.0.0.1@{port}"
    tcp-workers: 2
    udp-workers: 1
    background-workers: 1
control:
    listen: "{socket}"
log:
  - target: stderr
    any: error
database:
    storage: "{place}"
zone:
  - domain: "{zone}."
    file: "{file}"
    zonefile-load: whole
    zonefile-sync: -1
    journal-content: none
    semantic-checks: off
"""


def zone_lines(*, names: int, seed: int) -> Iterator[str]:
    """Generate the zone file: ``k0000000`` and so on, each with a text."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    yield f"$ORIGIN {ZONE}.\n$TTL 3600\n@ SOA ns. admin. 1 3600 600 86400 300\n@ NS ns.\n"
    for number in range(names):
        yield f'k{number:07d} TXT "{rng.randbytes(_TEXT_BYTES // 2).hex()} {LAST_TEXT}"\n'


def zone_file(folder: Path) -> Path:
    """Return where ``prepare`` writes the zone."""
    return folder / _ZONE_NAME


def prepare(folder: Path, /, *, names: int = 500_000, seed: int = 1) -> None:
    """Write the zone file into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with zone_file(folder).open("w", encoding="ascii") as file:
        file.writelines(zone_lines(names=names, seed=seed))


def serve_command(folder: Path, /, socket: Path, *, port: int = 28353) -> list[str]:
    """Return the command line of the server, and write its configuration beside the socket.

    Raises:
        SystemExit: If Knot DNS is not installed.
    """
    path = socket.with_name("knot.conf")
    text = _CONFIGURATION.format(
        place=socket.parent, socket=socket, port=port, zone=ZONE, file=zone_file(folder)
    )
    path.write_text(text, encoding="utf-8")
    return [needed("knotd", "knot"), "-c", str(path)]


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve_command)
