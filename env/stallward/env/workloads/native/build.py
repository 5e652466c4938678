"""Compiles the C programs in this folder: the hogs, the load generator, and the sub-tasks."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from importlib import resources
from pathlib import Path

from stallward.env.errors import WorkloadError

PROGRAMS = ("anon", "anon_once", "file_once", "file_loop", "dirty", "load", "subtasks")
_FLAGS = ("-O2", "-std=gnu11", "-pthread")


def sources_dir() -> Path:
    """Return the folder with the C sources in the installed package."""
    return Path(str(resources.files("stallward.env.workloads.native")))


def build_native(cache_dir: Path) -> Path:
    """Compile all programs, unless these sources have been compiled before.

    Args:
        cache_dir: The folder for builds. Each is in a folder named after the hash of its sources.

    Returns:
        The folder with the executables, named as in ``PROGRAMS``.

    Raises:
        WorkloadError: If there is no C compiler or it refuses the sources.
    """
    sources = sorted(sources_dir().glob("*.[ch]"))
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for source in sources:
        digest.update(source.name.encode() + source.read_bytes())
    target = cache_dir / f"native-{digest.hexdigest()[:16]}"
    if target.is_dir():
        return target
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise WorkloadError(
            "No C compiler was found on PATH (looked for cc and gcc).",
            next_step="Install one, e.g. `apt-get install gcc libc6-dev`.",
        )
    part = cache_dir / f"{target.name}.part-{os.getpid()}"
    part.mkdir(parents=True)
    try:
        for program in PROGRAMS:
            _compile(compiler, sources_dir() / f"{program}.c", part / program)
        part.rename(target)
    except OSError:
        if not target.is_dir():  # otherwise another process finished the same build first
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def _compile(compiler: str, source: Path, output: Path) -> None:
    command = (compiler, *_FLAGS, "-o", str(output), str(source), "-lm")
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise WorkloadError(
            f"{compiler} could not compile {source.name}: {process.stderr.strip()[:400]}",
            next_step="Install the C library's headers, e.g. `apt-get install libc6-dev`.",
        )
