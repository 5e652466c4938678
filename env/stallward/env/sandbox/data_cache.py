"""Data that scenarios need: made once, kept in a cache, evicted from memory before each block."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from stallward.env.errors import WorkloadError
from stallward.env.scenario.scenario import Places, Scenario, expand

_MODULES = "stallward.env.workloads"


def default_cache_dir() -> Path:
    """``$XDG_CACHE_HOME/stallward``, or ``~/.cache/stallward``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stallward"


def default_state_dir() -> Path:
    """``$XDG_STATE_HOME/stallward``, or ``~/.local/state/stallward``."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "stallward"


def data_key(scenario: Scenario) -> str:
    """Names the data of a scenario: changes with its commands and with the code they run."""
    commands = scenario.protected.prepare
    digest = hashlib.sha256(json.dumps(commands).encode())
    for word in sorted({word for argv in commands for word in argv if word.startswith(_MODULES)}):
        found = importlib.util.find_spec(word)
        if found is not None and found.origin is not None:
            digest.update(Path(found.origin).read_bytes())
    return digest.hexdigest()[:16]


def prepare_data(scenario: Scenario, cache_dir: Path, native_dir: Path) -> Path:
    """Run the scenario's prepare commands unless their data is there already.

    The data appears under its final name when it is complete; scenarios with the same commands
    share it.

    Args:
        scenario: Whose data.
        cache_dir: Where data is kept.
        native_dir: The compiled programs (``build_native``).

    Returns:
        The folder that ``{data}`` stands for.

    Raises:
        WorkloadError: If a command fails; what it left is removed.
    """
    target = cache_dir / f"data-{data_key(scenario)}"
    cache_dir.mkdir(parents=True, exist_ok=True)
    with _locked(cache_dir / f"{target.name}.lock"):
        if target.is_dir():
            return target
        part = cache_dir / f"{target.name}.part"
        shutil.rmtree(part, ignore_errors=True)  # what a killed run left; the lock is ours
        part.mkdir()
        places = Places(
            data=part, run=part, scratch=part, python=sys.executable, workloads=native_dir, seed=0
        )
        try:
            for argv in scenario.protected.prepare:
                run_to_end([expand(word, places) for word in argv])
            os.sync()  # dirty pages cannot be evicted
            part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return target


def run_to_end(argv: list[str]) -> None:
    """Run a program and wait for it.

    Raises:
        WorkloadError: If it is missing or fails, with the end of what it wrote.
    """
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as error:
        raise WorkloadError(f"Cannot run {argv[0]}: {error.strerror or error}.") from error
    if done.returncode != 0:
        wrote = (done.stderr or done.stdout).strip()[-600:]
        raise WorkloadError(
            f"`{' '.join(argv)}` failed with status {done.returncode}: {wrote}",
            next_step="Check free disk space and the programs it needs, then try again.",
        )


def evict(folder: Path) -> None:
    """Drop every file below ``folder`` from the page cache.

    Page cache charged to another group would be a free ride that hides the pressure.
    """
    for path in folder.rglob("*"):
        # Sockets and files that vanish meanwhile have nothing in the cache.
        with contextlib.suppress(OSError):
            if path.is_file():
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(fd)


def check_needs(scenario: Scenario) -> None:
    """Check that every program the scenario needs is installed.

    Raises:
        WorkloadError: Naming all missing programs and their Debian packages.
    """
    missing = [need for need in scenario.needs if not _present(need.program)]
    if missing:
        packages = " ".join(sorted({need.package for need in missing}))
        names = ", ".join(need.program for need in missing)
        raise WorkloadError(
            f"The scenario {scenario.name} needs programs that are not installed: {names}.",
            next_step=f"Install them, e.g. `apt-get install {packages}`.",
        )


def _present(program: str) -> bool:
    if program.startswith("/"):
        return any(Path("/").glob(program.lstrip("/")))
    return shutil.which(program) is not None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``path``; it vanishes with its holder."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
