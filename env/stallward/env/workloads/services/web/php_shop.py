"""A shop in PHP: lighttpd before PHP's workers (FPM), which share the memory with the articles.

``serve --socket PATH`` starts both with nothing of the machine's configuration. ``fill --socket
PATH --articles N`` stores the articles in the shared memory (APCu).
"""

from __future__ import annotations

import http.client
import os
import socket as sockets
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import become, run_program
from stallward.env.workloads.services.programs import needed

_PROGRAMS: Final = Path("/usr/sbin")
_FOLDER: Final = Path(str(resources.files("stallward.env.workloads.services.web")))
_ARTICLES_AT_ONCE: Final = 5_000
_WAIT_S: Final = 30.0

_POOL: Final = """\
[global]
daemonize = no
error_log = /dev/stderr
[shop]
user = {user}
listen = {place}/php.sock
pm = static
pm.max_children = {workers}
"""
_WEB: Final = """\
server.modules = ("mod_fastcgi")
server.document-root = "{root}"
server.bind = "{socket}"
server.max-keep-alive-requests = 1000000000
server.max-keep-alive-idle = 3600
fastcgi.server = (".php" => (("socket" => "{place}/php.sock")))
"""


def php_program(folder: Path = _PROGRAMS) -> str:
    """Return the path of FPM, whose name has a version; of several any.

    Raises:
        SystemExit: If it is not installed.
    """
    for path in folder.glob("php-fpm[0-9]*"):
        return str(path)
    sys.exit("php-fpm is not installed; try `apt-get install php-fpm php-apcu`")


def php_command(place: Path, *, workers: int, shared_mib: int) -> list[str]:
    """Return the command line of PHP's workers, and write their configuration into ``place``.

    Raises:
        SystemExit: If PHP is not installed.
    """
    path = place / "php.conf"
    user = "root" if os.geteuid() == 0 else os.environ.get("USER", "")
    path.write_text(_POOL.format(user=user, place=place, workers=workers), encoding="utf-8")
    command = [php_program(), "-n", "-y", str(path)]
    for setting in ("extension=apcu.so", "apc.enabled=1", f"apc.shm_size={shared_mib}M"):
        command += ["-d", setting]
    return [*command, "-R"] if user == "root" else command


def web_command(socket_path: Path) -> list[str]:
    """Return the command line of lighttpd, and write its configuration beside the socket.

    Raises:
        SystemExit: If lighttpd is not installed.
    """
    path = socket_path.with_name("lighttpd.conf")
    text = _WEB.format(root=_FOLDER, socket=socket_path, place=socket_path.parent)
    path.write_text(text, encoding="utf-8")
    return [needed("lighttpd", "lighttpd"), "-D", "-f", str(path)]


def serve(*, socket: Path, workers: int = 4, shared_mib: int = 256) -> None:
    """Start PHP's workers, and replace this process by the web server."""
    web = web_command(socket)
    php = php_command(socket.parent, workers=workers, shared_mib=shared_mib)
    # Whatever ends the web server ends PHP, too.
    subprocess.Popen([needed("setpriv", "util-linux"), "--pdeathsig", "TERM", *php])
    become(web)


class Client(http.client.HTTPConnection):
    """HTTP on a Unix socket.

    Args:
        path: The socket.
    """

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_WAIT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = sockets.socket(sockets.AF_UNIX)
        self.sock.settimeout(_WAIT_S)
        self.sock.connect(str(self._path))

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the page.

        Raises:
            OSError: If nobody answers.
        """
        self.request("GET", path)
        response = self.getresponse()
        return response.status, response.read().decode("ascii", "replace")


def fill(client: Client, *, articles: int, wait_s: float = _WAIT_S) -> None:
    """Store the articles ``0`` to ``articles - 1``; PHP may have to start yet.

    Raises:
        SystemExit: If PHP does not start in that time, or has too little memory.
    """
    deadline_s = time.monotonic() + wait_s
    first = kept = 0
    while first < articles:
        count = min(_ARTICLES_AT_ONCE, articles - first)
        status, page = client.get(f"/shop.php?fill={first}&count={count}")
        if status == http.HTTPStatus.OK:
            first, kept = first + count, int(page)
        elif status != http.HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > deadline_s:
            sys.exit(f"the shop cannot be filled: status {status}, {page.strip()[:200]}")
        else:
            time.sleep(0.1)
    if kept < articles:  # APCu drops all that it has when there is no memory for more
        sys.exit(f"the shop kept {kept} of {articles} articles; raise --shared-mib")


def fill_shop(*, socket: Path, articles: int = 100_000) -> None:
    """Store the articles in the shop at a socket."""
    fill(Client(socket), articles=articles)


if __name__ == "__main__":
    run_program(__doc__, serve=serve, fill=fill_shop)
