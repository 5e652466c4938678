"""A name server: BIND with one large zone, which it keeps in its own memory.

``prepare DIR --names N`` writes the zone file. ``serve DIR --port PORT --ready PATH`` becomes named
on the loopback address, which is ready once it has read the zone: before, it listens and answers
that it has failed.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.lookup.name_server import ZONE, prepare, zone_file
from stallward.env.workloads.services.programs import become_server, listens, needed

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


_QUESTION: Final = (
    b"\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00"  # one question, RFC 1035
    + b"\x04"
    + ZONE.encode()
    + b"\x00\x00\x06\x00\x01"  # the SOA record of the zone
)
_WAIT_S: Final = 60.0


def has_zone(port: int) -> bool:
    """Wait until the server on a port knows the zone; return false if it does not within a minute."""
    deadline_s = time.monotonic() + _WAIT_S
    while listens(port) and time.monotonic() < deadline_s:
        with socket.create_connection(("127.0.0.1", port), timeout=_WAIT_S) as client:
            client.sendall(len(_QUESTION).to_bytes(2) + _QUESTION)
            answer = client.makefile("rb").read(2 + 12)
        if len(answer) == 14 and answer[5] & 15 == 0 and answer[9] > 0:  # no error, one answer
            return True
        time.sleep(0.05)
    return False


def serve(folder: Path, /, *, ready: Path, port: int = 28354) -> None:
    """Replace this process by the server, and write its configuration beside ``ready``.

    Raises:
        SystemExit: If BIND is not installed.
    """
    path = ready.with_name("named.conf")
    text = _CONFIGURATION.format(place=ready.parent, port=port, zone=ZONE, file=zone_file(folder))
    path.write_text(text, encoding="utf-8")
    command = [needed("named", "bind9"), "-f", "-n", "2", "-c", str(path)]
    become_server(command, port=port, ready=ready, answers=has_zone)


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve)
