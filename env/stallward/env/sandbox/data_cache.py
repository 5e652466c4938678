"""The data of scenarios: made once, kept in a cache, evicted from memory before each block."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from stallward.env.errors import WorkloadError
from stallward.env.scenario.scenario import (
    PYTHON_NEED,
    Need,
    Places,
    Scenario,
    expand_command,
)
from stallward.env.workloads.made_once import made_once

_MODULES = "stallward.env.workloads"


def default_cache_dir() -> Path:
    """Return ``$XDG_CACHE_HOME/stallward``, or ``~/.cache/stallward``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stallward"


def default_state_dir() -> Path:
    """Return ``$XDG_STATE_HOME/stallward``, or ``~/.local/state/stallward``."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "stallward"


def data_key(commands: Sequence[Sequence[str]]) -> str:
    """Return the key of the data of some commands: a hash of them and of the modules they run.

    C sources beside a module count as a part of it: it compiles them, for this machine and its C
    library, and machines of other kinds may share the cache.
    """
    digest = hashlib.sha256(json.dumps([list(argv) for argv in commands]).encode())
    for word in sorted({word for argv in commands for word in argv if word.startswith(_MODULES)}):
        module = importlib.util.find_spec(word)
        if module is not None and module.origin is not None:
            path = Path(module.origin)
            compiled = sorted(path.parent.glob("*.[ch]"))
            for source in (path, *compiled):
                digest.update(source.read_bytes())
            if compiled:
                digest.update(" ".join((platform.machine(), *platform.libc_ver())).encode())
    return digest.hexdigest()[:16]


def prepare_data(scenario: Scenario, cache_dir: Path, native_dir: Path) -> Path:
    """Run the scenario's prepare commands unless their data exists already.

    See :func:`prepare_commands`.
    """
    return prepare_commands(scenario.protected.prepare, cache_dir, native_dir)


def prepare_commands(commands: Sequence[Sequence[str]], cache_dir: Path, native_dir: Path) -> Path:
    """Run commands that make data, unless their data exists already.

    The data gets its final name once it is complete. The same commands share it.

    Args:
        commands: The commands, with placeholders.
        cache_dir: The folder that data is kept in.
        native_dir: The folder with the compiled programs (``build_native``).

    Returns:
        The folder that ``{data}`` stands for.

    Raises:
        WorkloadError: If a command fails; its incomplete data is removed.
    """

    def fill(part: Path) -> None:
        places = Places(
            data=part,
            run=part,
            scratch=part,
            python=sys.executable,  # noqa: TID251
            workloads=native_dir,
            seed=0,
        )
        for argv in commands:
            run_to_end(expand_command(argv, places))
        os.sync()  # dirty pages cannot be evicted

    return made_once(cache_dir / f"data-{data_key(commands)}", fill)


def run_to_end(argv: list[str]) -> None:
    """Run a program and wait for it.

    Raises:
        WorkloadError: If it is missing or fails; the error quotes the end of its output.
    """
    try:
        process = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as error:
        raise WorkloadError(f"Cannot run {argv[0]}: {error.strerror or error}.") from error
    if process.returncode != 0:
        output = (process.stderr or process.stdout).strip()[-600:]
        raise WorkloadError(
            f"`{' '.join(argv)}` failed with status {process.returncode}: {output}",
            next_step="Check free disk space and the programs it needs, then try again.",
        )


def evict(folder: Path) -> None:
    """Drop every file below ``folder`` from the page cache.

    Pages that are cached already are charged to another group: the programs of the sandbox would
    use them for free, and there would be less pressure.
    """
    for path in folder.rglob("*"):
        # Sockets, and files that vanish meanwhile, have no pages in the cache.
        with contextlib.suppress(OSError):
            if path.is_file():
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(fd)


def check_needs(scenario: Scenario) -> None:
    """Check that every program and Python module the scenario needs is installed.

    Raises:
        WorkloadError: If any is missing; the error names them all and their packages.
    """
    missing = [need for need in scenario.needs if not _is_installed(need.program)]
    if missing:
        names = ", ".join(need.program for need in missing)
        modules = [need for need in missing if need.program.startswith(PYTHON_NEED)]
        commands = [
            _install("apt-get install", [need for need in missing if need not in modules]),
            _install(f"{sys.executable} -m pip install", modules),  # noqa: TID251
        ]
        raise WorkloadError(
            f"The scenario {scenario.name} needs programs that are not installed: {names}.",
            next_step=f"Install them, e.g. {' and '.join(filter(None, commands))}.",
        )


def _install(command: str, needs: list[Need]) -> str:
    packages = " ".join(sorted({need.package for need in needs}))
    return f"`{command} {packages}`" if needs else ""


def _is_installed(program: str) -> bool:
    if program.startswith(PYTHON_NEED):
        return importlib.util.find_spec(program.removeprefix(PYTHON_NEED)) is not None
    if program.startswith("/"):
        return any(Path("/").glob(program.lstrip("/")))
    return shutil.which(program) is not None
