"""A web cache: Varnish with the pages of a site in its own memory.

``serve --socket PATH`` becomes Varnish on that Unix socket. It has no site behind it: what it
lacks it makes itself, as it would make the page of an error, and keeps it for a day.
``fill --socket PATH`` asks for each page once.
"""

from __future__ import annotations

import random
import re
import socket as sockets
import sys
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.programs import connected, needed

LAST_TEXT: Final = "that was all"
"""The end of the page ``/last``, by which a client sees that it has all pages before it, too."""
_PAGES_AT_ONCE: Final = 50
_PACKAGE: Final = "varnish"

_LANGUAGE: Final = """\
vcl 4.1;
backend default none;

sub vcl_backend_error {{
  set beresp.status = 200;
  set beresp.ttl = 1d;
  set beresp.http.Content-Type = "text/plain";
  if (bereq.url == "/last") {{
    synthetic("{last}");
  }} else {{
    synthetic(bereq.url + " {text}");
  }}
  return (deliver);
}}
"""


def language(*, page_kib: int, seed: int) -> str:
    """Return what Varnish does, in its own language: pages of one text after their names."""
    text = random.Random(seed).randbytes(page_kib << 9).hex()  # noqa: S311 - not for secrets
    return _LANGUAGE.format(last=LAST_TEXT, text=text)


def serve_command(
    socket: Path, *, page_kib: int = 10, memory_mib: int = 1024, seed: int = 1
) -> list[str]:
    """Return the command line of the server, and write its program beside the socket.

    Raises:
        SystemExit: If Varnish is not installed.
    """
    program = socket.with_name("pages.vcl")
    program.write_text(language(page_kib=page_kib, seed=seed), encoding="utf-8")
    store = ["-s", f"malloc,{memory_mib}m", "-s", f"Transient=malloc,{memory_mib}m"]
    pools = ["-p", "thread_pools=1", "-p", "thread_pool_min=16", "-p", "vsl_space=16m"]
    quiet = ["-j", "none", "-T", "none", "-n", str(socket.parent / "varnish")]
    return [needed("varnishd", _PACKAGE), "-F", "-a", str(socket), "-f", str(program), *store,
            *pools, *quiet]  # fmt: skip


def _get(page: str) -> bytes:
    return b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % page.encode()


def fill(socket: Path, *, pages: int = 20_000) -> None:
    """Ask for the pages ``0`` to ``pages - 1`` once each.

    Raises:
        SystemExit: If Varnish closes the connection, or has dropped the first one meanwhile.
    """
    with connected(socket) as client:
        for first in range(0, pages, _PAGES_AT_ONCE):
            wanted = range(first, min(first + _PAGES_AT_ONCE, pages))
            _ask(client, *(str(page) for page in wanted))
        head = _ask(client, "0").partition(b"\r\n\r\n")[0]
    # A page that was kept has two numbers: that of this request and that of the one that made it.
    if re.search(rb"X-Varnish: \d+ \d+", head) is None:
        sys.exit(f"Varnish has not kept all of {pages} pages; raise --memory-mib")


def _ask(client: sockets.socket, *pages: str) -> bytes:
    """Ask for pages and the last one, and return all replies."""
    client.sendall(b"".join(_get(page) for page in (*pages, "last")))
    reply = bytearray()
    while not reply.endswith(LAST_TEXT.encode()):
        received = client.recv(1 << 20)
        if not received:
            sys.exit(f"Varnish has closed the connection: {bytes(reply[-200:])!r}")
        reply += received
    return bytes(reply)


if __name__ == "__main__":
    run_program(__doc__, serve=serve_command, fill=fill)
