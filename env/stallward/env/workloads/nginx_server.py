"""Runs nginx with a folder on a Unix socket, without the machine's own configuration of nginx.

Run: ``python -m stallward.env.workloads.nginx_server --root DIR --run DIR``; the socket is
``nginx.sock`` in the second folder.
"""

from __future__ import annotations

from pathlib import Path

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.programs import needed

_CONFIGURATION = """
daemon off;
user {user};
pid {run}/nginx.pid;
error_log stderr;
worker_processes 1;
events {{ worker_connections 128; }}
http {{
  access_log off;
  sendfile on;
  keepalive_timeout 3600;
  keepalive_requests 1000000000;
  client_body_temp_path {run}/body;
  proxy_temp_path {run}/proxy;
  fastcgi_temp_path {run}/fastcgi;
  scgi_temp_path {run}/scgi;
  uwsgi_temp_path {run}/uwsgi;
  server {{
    listen unix:{run}/nginx.sock;
    root {root};
  }}
}}
"""


def configuration(root: Path, run: Path, user: str) -> str:
    """Return the text of the configuration file."""
    return _CONFIGURATION.format(root=root, run=run, user=user)


def main(*, root: Path, run: Path) -> list[str]:
    """Write the configuration, and return the command line of the server."""
    # As root, because the folder may be in a cache in root's home.
    file = run / "nginx.conf"
    file.write_text(configuration(root, run, user="root"), encoding="utf-8")
    return [needed("nginx", "nginx-light"), "-p", str(run), "-c", str(file)]


if __name__ == "__main__":
    run_program(__doc__, main)
