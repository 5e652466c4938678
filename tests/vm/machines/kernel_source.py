"""Builds a User-mode Linux kernel from Debian's source, once.

``PYTHONPATH=tests/vm .venv/bin/python -m machines.kernel_source`` (what ``scripts/setup.sh uml``
runs). The kernel is an ordinary program. It is kept below build/uml under the version of its
source and a hash of user_mode.config, so that it is built anew when the configuration changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bounded_run import end_on_sigterm, kill_session

from machines.machine import SkippedError, say

CONFIG: Final = Path(__file__).with_name("user_mode.config")
BUILD: Final = Path(__file__).resolve().parents[3] / "build" / "uml"
SUITE: Final = "trixie-backports"
"""Where Debian keeps its newest kernels that are fit for use."""
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
OLDEST: Final = (6, 19)
"""The first version with more than one processor. The faster way to run processes, by seccomp
instead of ptrace, is there from 6.16 on."""
FREE_BYTES: Final = 4 << 30
"""The space that source and object files take while it is built."""
BUILD_LIMIT_S: Final = 30 * 60.0
TOOLS: Final = {
    "cc": "gcc",
    "make": "make",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
    "xz": "xz-utils",
    "tar": "tar",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
}
OPTIONAL: Final = " # if there"
PART: Final = "part-"


def wanted(text: str) -> dict[str, tuple[str, bool]]:
    """The options of a configuration: name -> value (``n`` if it is not set), must it be kept."""
    options = {}
    for line in text.splitlines():
        option, optional, _ = line.partition(OPTIONAL)
        if found := re.fullmatch(r"(CONFIG_\w+)=(.+)", option):
            options[found[1]] = (found[2], not optional)
        elif found := re.fullmatch(r"# (CONFIG_\w+) is not set", option):
            options[found[1]] = ("n", not optional)
    return options


def lost(asked: str, resolved: str) -> list[str]:
    """The options that had to be kept and were not."""
    have = wanted(resolved)
    return [
        name
        for name, (value, must) in wanted(asked).items()
        if must and have.get(name, ("n", True))[0] != value
    ]


def config_hash(text: str) -> str:
    """A short hash of a configuration."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def built(build: Path) -> Path | None:
    """The newest kernel that was built with today's configuration."""
    found = build.glob(f"linux-*-{config_hash(CONFIG.read_text())}")
    kernels = sorted(found, key=lambda path: path.stat().st_mtime)
    return kernels[-1] if kernels else None


def check(build: Path) -> None:
    """Check that a kernel can be built here.

    Raises:
        SkippedError: If something is missing.
    """
    if platform.machine() != "x86_64":
        raise SkippedError(f"it is built for x86-64, this machine is {platform.machine()}")
    lacking = [
        f"{command} (package {p})" for command, p in TOOLS.items() if not shutil.which(command)
    ]
    if not KEYRING.exists():
        lacking.append(f"{KEYRING} (package debian-archive-keyring)")
    if lacking:
        raise SkippedError(f"not installed: {', '.join(lacking)}; as root, make test-vm does it")
    build.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(build).free
    if free < FREE_BYTES:
        raise SkippedError(
            f"{free / (1 << 30):.1f} GiB are free in {build}, building takes {FREE_BYTES >> 30}"
        )


def run(command: Sequence[str | Path], folder: Path, what: str) -> str:
    """Run a command for a bounded time; returns what it printed.

    Raises:
        SkippedError: If it fails.
    """
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, errors = process.communicate(timeout=BUILD_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise SkippedError(f"{what}: not done after {BUILD_LIMIT_S:.0f} s") from error
        finally:
            kill_session(process)
    if process.returncode != 0:
        raise SkippedError(f"{what}: {(errors or printed).strip()[-400:]}")
    return printed


class Apt:
    """apt with lists of its own, for a suite that this machine does not install from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("state/lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        sources = folder / "sources.list"
        sources.write_text(
            f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {SUITE} main\n"
        )
        self._options = [
            f"-oDir::State={folder / 'state'}",
            f"-oDir::Cache={folder / 'cache'}",
            f"-oDir::Etc::SourceList={sources}",
            "-oDir::Etc::SourceParts=-",
            "-oDir::State::Status=/var/lib/dpkg/status",
            "-oAPT::Sandbox::User=root",
            "-oAcquire::Languages=none",
        ]

    def newest_source(self) -> tuple[str, str]:
        """The package of the newest kernel source, and its version.

        Raises:
            SkippedError: If there is none that will do.
        """
        run(["apt-get", *self._options, "update", "-q"], self.folder, f"apt knows no {SUITE}")
        names = run(
            ["apt-cache", *self._options, "search", "--names-only", r"^linux-source-[0-9.]+$"],
            self.folder,
            "apt-cache search",
        )
        package = newest(names)
        if package is None:
            raise SkippedError(f"{SUITE} has no linux-source of at least {OLDEST[0]}.{OLDEST[1]}")
        shown = run(
            ["apt-cache", *self._options, "show", "--no-all-versions", package],
            self.folder,
            "apt-cache show",
        )
        version = next(x.split()[1] for x in shown.splitlines() if x.startswith("Version:"))
        return package, version

    def download(self, package: str) -> Path:
        """Download a package."""
        run(["apt-get", *self._options, "download", "-q", package], self.folder, package)
        return next(self.folder.glob(f"{package}_*.deb"))


def newest(listed: str) -> str | None:
    """The newest source among the lines of ``apt-cache search`` that is new enough."""
    found = re.findall(r"^(linux-source-(\d+)\.(\d+)) ", listed, re.MULTILINE)
    versions = {(int(major), int(minor)): name for name, major, minor in found}
    best = max(versions, default=(0, 0))
    return versions[best] if best >= OLDEST else None


def compile_kernel(source: Path, folder: Path, asked: str) -> Path:
    """Configure and compile; returns the kernel.

    Args:
        source: The folder of the source.
        folder: The folder for what is made.
        asked: The options, beyond the kernel's own default configuration.

    Raises:
        SkippedError: If an option is lost, or it cannot be compiled.
    """
    make = ["make", "ARCH=um", f"O={folder}", f"-j{os.cpu_count() or 1}"]
    run([*make, "x86_64_defconfig"], source, "make x86_64_defconfig")
    with (folder / ".config").open("a") as file:
        file.write(asked.replace(OPTIONAL, ""))
    run([*make, "olddefconfig"], source, "make olddefconfig")
    if names := lost(asked, (folder / ".config").read_text()):
        raise SkippedError(f"this source cannot have {', '.join(names)}")
    run([*make, "linux"], source, "the kernel cannot be compiled")
    return folder / "linux"


def build_kernel(build: Path = BUILD) -> Path:
    """The kernel; the first call downloads its source and builds it, in a few minutes.

    Raises:
        SkippedError: If it cannot be built here.
    """
    if kernel := built(build):
        return kernel
    check(build)
    with (build / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be building it
        if kernel := built(build):
            return kernel
        for left in build.glob(f"{PART}*"):
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(dir=build, prefix=PART) as name:
            return _build_in(Path(name), build)


def _build_in(part: Path, build: Path) -> Path:
    asked = CONFIG.read_text()  # once: the file may change before the kernel is named by it
    apt = Apt(part)
    package, version = apt.newest_source()
    say(f"building User-mode Linux from {package} {version}, once (3 to 5 minutes)")
    archive = apt.download(package)
    run(["dpkg-deb", "-x", archive, part], part, "dpkg-deb")
    archive.unlink()
    packed = part / "usr" / "src" / f"{package}.tar.xz"
    run(["tar", "xf", packed], part, "tar")
    packed.unlink()
    (part / "objects").mkdir()
    made = compile_kernel(part / package, part / "objects", asked)
    run(["strip", made], part, "strip")
    return made.rename(build / f"linux-{version}-{config_hash(asked)}")


def main() -> int:
    """Build it; returns 0, or 1 if it cannot be built."""
    end_on_sigterm()
    try:
        kernel = build_kernel()
    except SkippedError as error:
        say(f"User-mode Linux cannot be built: {error}")
        return 1
    say(f"User-mode Linux: {kernel.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
