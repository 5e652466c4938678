"""Runs Debian's PostgreSQL with its own data folder, as the user ``postgres``.

``prepare DIR --scale N`` makes the folder, fills pgbench's tables and writes ``reads.sql``, a
transaction for pgbench that looks up random accounts. ``serve DIR --socket DIR`` serves the folder
on a Unix socket. If root starts them, both run PostgreSQL as ``postgres`` with one extra
capability, to pass folders that are closed to that user: the cache may be in root's home.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import time
from pathlib import Path

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.programs import needed, run

_ACCOUNTS_PER_SCALE = 100_000
_LOOKUPS = 20
"""How many accounts a transaction looks up. Most are on different pages, so that a
few evicted pages delay most requests."""

_CONFIGURATION = """
listen_addresses = ''
shared_buffers = 64MB
fsync = off
synchronous_commit = off
full_page_writes = off
autovacuum = off
max_connections = 20
huge_pages = off
dynamic_shared_memory_type = mmap
jit = off
max_parallel_workers_per_gather = 0
logging_collector = off
"""


def programs_dir() -> Path:
    """Return the folder with ``initdb`` and ``postgres`` of the newest installed version.

    Raises:
        SystemExit: If PostgreSQL is not installed.
    """
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4])
    )
    if not versions:
        sys.exit("PostgreSQL is not installed; try `apt-get install postgresql`")
    return versions[-1].parent


def as_postgres(argv: list[str]) -> list[str]:
    """Return a command that runs ``argv`` as the user ``postgres``, if this process is root's."""
    if os.geteuid() != 0:
        return argv
    rights = "+dac_override"
    return [
        needed("setpriv", "util-linux"),
        "--reuid=postgres",
        "--regid=postgres",
        "--clear-groups",
        f"--inh-caps={rights}",
        f"--ambient-caps={rights}",
        *argv,
    ]


def prepare(folder: Path, /, *, scale: int = 25) -> None:
    """Make the data folder below ``folder``, fill pgbench's tables and write ``reads.sql``."""
    programs, data = programs_dir(), folder / "pg"
    data.mkdir(parents=True)
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(data, user.pw_uid, user.pw_gid)
    data.chmod(0o700)
    initdb = [str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres"]
    run([*as_postgres(initdb), "-E", "UTF8", "--no-locale", "--no-sync"])
    with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write(_CONFIGURATION)
    socket_dir = data  # postgres can write there
    command = serve_command(folder, socket=socket_dir, buffers_mib=64)
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _wait_ready(programs, socket_dir)
        bench = ["pgbench", "-i", "-q", "-s", str(scale), "-h", str(socket_dir), "-U", "postgres"]
        run([*bench, "postgres"])
        vacuum = ["psql", "-h", str(socket_dir), "-U", "postgres", "-c", "VACUUM FREEZE"]
        run([*vacuum, "-c", "CHECKPOINT", "postgres"])
    finally:
        server.terminate()
        server.wait()
    (folder / "reads.sql").write_text(reads_script(scale), encoding="utf-8")


def reads_script(scale: int) -> str:
    """Return a pgbench script: one statement that looks up uniformly random accounts."""
    names = [f"a{number}" for number in range(_LOOKUPS)]
    chosen = [f"\\set {name} random(1, {scale * _ACCOUNTS_PER_SCALE})" for name in names]
    keys = ", ".join(f":{name}" for name in names)
    select = f"SELECT sum(abalance) FROM pgbench_accounts WHERE aid IN ({keys});"  # noqa: S608
    return "\n".join([*chosen, select, ""])


def serve_command(
    folder: Path, /, *, socket: Path = Path("/run"), buffers_mib: int = 128
) -> list[str]:
    """Return the command line of the server."""
    command = [str(programs_dir() / "postgres"), "-D", str(folder / "pg"), "-k", str(socket)]
    return as_postgres([*command, "-c", f"shared_buffers={buffers_mib}MB"])


def _wait_ready(programs: Path, socket_dir: Path) -> None:
    for _ in range(300):
        probe = [str(programs / "pg_isready"), "-q", "-h", str(socket_dir)]
        if subprocess.run(probe, check=False).returncode == 0:
            return
        time.sleep(0.1)
    sys.exit("PostgreSQL did not start within 30 s")


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve_command)
