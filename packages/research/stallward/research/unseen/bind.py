"""A name server: BIND with one large zone, which it keeps in its own memory.

``prepare DIR --names N`` writes the zone file. ``serve DIR --port PORT --ready PATH`` becomes named
on the loopback address.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.lookup.name_server import ZONE, prepare, zone_file
from stallward.env.workloads.services.programs import become_server, needed

_CONFIGURATION: Final = """\
options {{
    directory "{place}";
    pid-file none;
    session-keyfile none;
    listen-on port {port} {{ 127.0.0.1; }};
    listen-on-v6 {{ none; }};
    recursion no;
    minimal-responses yes;
    tcp-idle-timeout 1200;
    dnssec-validation no;
    empty-zones-enable no;
}};
controls {{ }};
zone "{zone}" {{ type primary; file "{file}"; notify no; check-names ignore; }};
"""


def serve(folder: Path, /, *, ready: Path, port: int = 28354) -> None:
    """Replace this process by the server, and write its configuration beside ``ready``.

    Raises:
        SystemExit: If BIND is not installed.
    """
    path = ready.with_name("named.conf")
    text = _CONFIGURATION.format(place=ready.parent, port=port, zone=ZONE, file=zone_file(folder))
    path.write_text(text, encoding="utf-8")
    command = [needed("named", "bind9"), "-f", "-n", "2", "-c", str(path)]
    become_server(command, port=port, ready=ready)


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve)
