"""Builds a User-mode Linux kernel from Debian's source, once for all clones of a user.

The kernel is an ordinary program. user_mode.config names its source and its options. It is kept in
the user's cache folder under the version of its source and a hash of that file, so that it is built
anew when the file changes, and only then.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bounded_run import kill_session, postponed

from machines.machine import SkippedError, say
from stallward.env.sandbox.data_cache import default_cache_dir

CONFIG: Final = Path(__file__).with_name("user_mode.config")
SUITE: Final = "trixie-backports"
"""Where Debian keeps its newest kernels that are fit for use."""
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
OLDEST: Final = (6, 19)
"""The first version with more than one processor. The faster way to run processes, by seccomp
instead of ptrace, is there from 6.16 on."""
FREE_BYTES: Final = 2 << 30
"""The space that source and object files take while it is built; what is kept takes 8 MB."""
NOT_UNPACKED: Final = (
    *("Documentation/*.*", "arch/[a-tvw]*/*.[chS]", "*.dts", "*.dtsi", "drivers/gpu/*.[ch]"),
    *("drivers/net/*/*.[ch]", "sound/*.[ch]", "tools/perf/*", "tools/testing/*"),
)
"""Two thirds of the source, which no build for ARCH=um reads."""
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
PART: Final = "part-"
PACKAGES: Final = "linux-source-"
"""How the names of the packages begin."""


class Source(NamedTuple):
    """A version of one of Debian's packages of kernel sources."""

    package: str
    version: str


def options(text: str) -> dict[str, str]:
    """The options of a configuration: name -> value, ``n`` if it is not set."""
    set_here = dict(re.findall(r"^(CONFIG_\w+)=(.+)$", text, re.MULTILINE))
    not_set = re.findall(r"^# (CONFIG_\w+) is not set$", text, re.MULTILINE)
    return {**set_here, **dict.fromkeys(not_set, "n")}


def lost(asked: str, resolved: str) -> list[str]:
    """The options that were asked for and were not kept."""
    have = options(resolved)
    return [name for name, value in options(asked).items() if have.get(name, "n") != value]


def pinned(text: str) -> Source:
    """The source that a configuration names."""
    found = re.search(r"^# Source: (\S+) (\S+)$", text, re.MULTILINE)
    assert found is not None, f"{CONFIG} names no source"
    return Source(found[1], found[2])


def config_hash(text: str) -> str:
    """A short hash of a configuration."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def kernel_folder() -> Path:
    """The folder for kernels in the user's cache."""
    return default_cache_dir() / "uml"


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
    with contextlib.ExitStack() as stack:
        with postponed():
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            stack.enter_context(process)
            stack.callback(kill_session, process)
        try:
            printed, errors = process.communicate(timeout=BUILD_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise SkippedError(f"{what}: not done after {BUILD_LIMIT_S:.0f} s") from error
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

    def find(self, wanted_source: Source) -> Source:
        """The source that is wanted, or else the newest one.

        Raises:
            SkippedError: If there is none that will do.
        """
        run(["apt-get", *self._options, "update", "-q"], self.folder, f"apt knows no {SUITE}")
        names = run(["apt-cache", *self._options, "pkgnames", PACKAGES], self.folder, "apt-cache")
        listed = run(
            ["apt-cache", *self._options, "madison", *names.split()], self.folder, "apt-cache"
        )
        source = chosen(listed, wanted_source)
        if source is None:
            raise SkippedError(f"{SUITE} has no {PACKAGES} of at least {OLDEST[0]}.{OLDEST[1]}")
        return source

    def download(self, source: Source) -> Path:
        """Download a package."""
        asked = f"{source.package}={source.version}"
        run(["apt-get", *self._options, "download", "-q", asked], self.folder, asked)
        return next(self.folder.glob(f"{source.package}_*.deb"))


def chosen(listed: str, wanted_source: Source) -> Source | None:
    """The source that is wanted, or else the newest that is new enough.

    Args:
        listed: The lines of ``apt-cache madison``, with the newest version of a package first.
        wanted_source: The one to take if it is there.
    """
    lines = rf"^ *({PACKAGES}(\d+)\.(\d+)) \| (\S+) \|"
    newest, best = (0, 0), None
    for package, major, minor, version in re.findall(lines, listed, re.MULTILINE):
        source = Source(package, version)
        if source == wanted_source:
            return source
        if (int(major), int(minor)) > newest:
            newest, best = (int(major), int(minor)), source
    return best if newest >= OLDEST else None


def compile_kernel(source: Path, folder: Path, asked: str) -> Path:
    """Configure and compile; returns the kernel.

    Args:
        source: The folder of the source.
        folder: The folder for what is made.
        asked: The options; every other one is off unless one of these needs it.

    Raises:
        SkippedError: If an option is lost, or it cannot be compiled.
    """
    make = ["make", "ARCH=um", f"O={folder}", f"-j{os.cpu_count() or 1}"]
    (folder / "asked").write_text(asked)
    on = f"KCONFIG_ALLCONFIG={folder / 'asked'}"
    run([*make, on, "allnoconfig"], source, "make allnoconfig")
    if names := lost(asked, (folder / ".config").read_text()):
        raise SkippedError(f"this source cannot have {', '.join(names)}")
    run([*make, "linux"], source, "the kernel cannot be compiled")
    return folder / "linux"


def build_kernel(build: Path) -> Path:
    """The kernel; the first call downloads its source and builds it, in a few minutes.

    Args:
        build: The folder for kernels.

    Raises:
        SkippedError: If it cannot be built here.
    """
    kernel = built(build) or _build_alone(build)
    source = pinned(CONFIG.read_text())
    if not kernel.name.startswith(f"linux-{source.version}-"):
        say(
            f"{SUITE} has no {source.package} {source.version} any more: this is {kernel.name}. "
            f"To keep to one that it has, name it in the line '# Source:' of {CONFIG.name}."
        )
    return kernel


def _build_alone(build: Path) -> Path:
    """Build it, unless another process has meanwhile."""
    check(build)
    with (build / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kernel := built(build):
            return kernel
        for left in build.glob(f"{PART}*"):
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(dir=build, prefix=PART) as name:
            return _build_in(Path(name), build)


def _build_in(part: Path, build: Path) -> Path:
    asked = CONFIG.read_text()  # once: the file may change before the kernel is named by it
    apt = Apt(part)
    source = apt.find(pinned(asked))
    say(f"building User-mode Linux from {source.package} {source.version}, once (some minutes)")
    archive = apt.download(source)
    run(["dpkg-deb", "-x", archive, part], part, "dpkg-deb")
    archive.unlink()
    packed = part / "usr" / "src" / f"{source.package}.tar.xz"
    left_out = [f"--exclude={source.package}/{pattern}" for pattern in NOT_UNPACKED]
    run(["tar", "xf", packed, *left_out], part, "tar")
    packed.unlink()
    (part / "objects").mkdir()
    made = compile_kernel(part / source.package, part / "objects", asked)
    run(["strip", made], part, "strip")
    return made.rename(build / f"linux-{source.version}-{config_hash(asked)}")
