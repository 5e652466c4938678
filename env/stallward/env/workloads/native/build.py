"""Compiles the C programs in this folder: the hogs, the load generator, and the sub-tasks."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
from importlib import resources
from pathlib import Path

from stallward.env.errors import WorkloadError
from stallward.env.workloads.made_once import made_once

PROGRAMS = ("anon", "anon_once", "file_once", "file_loop", "dirty", "load", "subtasks")
_FLAGS = ("-O2", "-std=gnu11", "-pthread")


def sources_dir() -> Path:
    """Return the folder with the C sources in the installed package."""
    return Path(str(resources.files("stallward.env.workloads.native")))


def build_native(cache_dir: Path) -> Path:
    """Compile all programs, unless these sources have been compiled here before.

    Args:
        cache_dir: The folder for builds, which machines may share. Each build is in a folder named
            after the hash of its sources, the compiler, and the machine and C library it is for.

    Returns:
        The folder with the executables, named as in ``PROGRAMS``.

    Raises:
        WorkloadError: If there is no C compiler or it refuses the sources.
    """
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None:
        raise WorkloadError(
            "No C compiler was found on PATH (looked for cc and gcc).",
            next_step="Install one, e.g. `apt-get install gcc libc6-dev`.",
        )
    compiler = Path(found).resolve().name  # on Debian, with its version
    built_for = (*_FLAGS, compiler, platform.machine(), *platform.libc_ver())
    digest = hashlib.sha256(" ".join(built_for).encode())
    for source in sorted(sources_dir().glob("*.[ch]")):
        digest.update(source.name.encode() + source.read_bytes())

    def compile_all(folder: Path) -> None:
        for program in PROGRAMS:
            _compile(found, sources_dir() / f"{program}.c", folder / program)

    return made_once(cache_dir / f"native-{digest.hexdigest()[:16]}", compile_all)


def _compile(compiler: str, source: Path, output: Path) -> None:
    command = (compiler, *_FLAGS, "-o", str(output), str(source), "-lm")
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise WorkloadError(
            f"{compiler} could not compile {source.name}: {process.stderr.strip()[:400]}",
            next_step="Install the C library's headers, e.g. `apt-get install libc6-dev`.",
        )
