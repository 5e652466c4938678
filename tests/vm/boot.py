"""Boots a Debian kernel in an emulated machine and runs the tests that need cgroup v2 there.

``.venv/bin/python tests/vm/boot.py [PYTEST ARGUMENT...]`` (what ``make test-vm`` runs). It needs
no root and no KVM: the kernel is unpacked from its package into build/vm, virtme-ng boots it on
this machine's own file system, read-only, and one folder (build/vm/results) is written from
inside. Emulated: right for behaviour, wrong for timing.

Exit status: that of pytest inside; 1 if the machine did not finish; 0 with a line that says what
is missing where it cannot be booted at all.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build" / "vm"
RESULTS: Final = BUILD / "results"
GUEST_RESULTS: Final = "/run/stallward/results"
META_PACKAGE: Final = "linux-image-amd64"
LIMIT_S: Final = 15 * 60.0
"""Hard bound of one run; a normal one takes eight to ten minutes on two cores."""
DISK_BYTES: Final = 2 << 30
SWAP_BYTES: Final = 512 << 20
"""Both are sparse files."""

# Command -> Debian package.
TOOLS: Final = {
    "qemu-system-x86_64": "qemu-system-x86",
    "depmod": "kmod",
    "busybox": "busybox-static",
    "file": "file",
    "mkfs.ext4": "e2fsprogs",
    "mkswap": "util-linux",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
}
# What of the kernel package is unpacked: 30 MB of 400.
MODULES: Final = (
    "/kernel/arch/x86/crypto/",
    "/kernel/block/",
    "/kernel/crypto/",
    "/kernel/drivers/block/",
    "/kernel/drivers/char/",
    "/kernel/drivers/virtio/",
    "/kernel/fs/9p/",
    "/kernel/fs/ext4/",
    "/kernel/fs/fscache/",
    "/kernel/fs/jbd2/",
    "/kernel/fs/mbcache",
    "/kernel/fs/netfs/",
    "/kernel/fs/overlayfs/",
    "/kernel/lib/",
    "/kernel/net/9p/",
    "/modules.",
)
TARGETS: Final = (
    "tests/vm",
    "tests/actuator/test_groups.py",
    "tests/actuator/test_levers_live.py",
    "tests/actuator/test_keeper.py",
    "tests/env/test_sandbox.py",
)
"""What runs inside unless arguments are given: the tests of this folder, and live ones that hold
on every kind of node. None of them imports torch."""
DEFAULT_ARGUMENTS: Final = ("-ra", "--durations=10", "-m", "vm or live", *TARGETS)


class SkippedError(Exception):
    """Raised when the machine cannot be booted here; the message says what is missing."""


def say(text: str) -> None:
    """One line of progress."""
    sys.stdout.write(f"vm: {text}\n")
    sys.stdout.flush()


def check_tools(path: str, vng: Path) -> None:
    """Check that everything the host must have is there.

    Args:
        path: Where commands are looked for, as in PATH.
        vng: The virtme-ng command.

    Raises:
        SkippedError: Naming what is missing, and its Debian package.
    """
    if platform.machine() != "x86_64":
        raise SkippedError(f"the kernel is for x86-64, this machine is {platform.machine()}")
    if " " in str(ROOT):
        raise SkippedError(f"virtme-ng takes no path with a blank ({ROOT})")
    lacking = [f"{c} (package {p})" for c, p in TOOLS.items() if not shutil.which(c, path=path)]
    if not vng.exists():
        lacking.append("virtme-ng (PyPI)")
    if lacking:
        raise SkippedError(f"not installed: {', '.join(lacking)}; as root, make test-vm does it")


def wanted(name: str) -> bool:
    """Whether a file of the kernel package is unpacked."""
    if "/boot/" in name:
        return "/vmlinuz-" in name
    return "/lib/modules/" in name and any(part in name for part in MODULES)


def unpack(package: Path, folder: Path) -> None:
    """Unpack the image and the few modules that are needed of a kernel package.

    Raises:
        OSError: If the package cannot be read.
    """
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                if member.isfile() and wanted(member.name):
                    archive.extract(member, folder)
        if process.wait() != 0:
            raise OSError(f"dpkg-deb cannot read {package}")


def kernel_package() -> str:
    """The name of the package that Debian's current kernel is in.

    Raises:
        SkippedError: If apt knows none.
    """
    listed = subprocess.run(
        ["apt-cache", "depends", "--important", META_PACKAGE],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    names = [line.split()[-1] for line in listed.splitlines() if "Depends: linux-image" in line]
    if not names:
        raise SkippedError(f"apt knows no package {META_PACKAGE} (is this Debian?)")
    return names[0]


def fetch_kernel(folder: Path) -> Path:
    """The kernel image below ``folder``; downloaded and unpacked on the first call.

    Raises:
        SkippedError: If it cannot be downloaded.
    """
    images = sorted(folder.glob("boot/vmlinuz-*"))
    if images:
        return images[-1]
    part = folder.with_name("kernel.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    if os.geteuid() == 0:  # an old list names packages that are gone
        subprocess.run(["apt-get", "update", "-q"], capture_output=True, check=False)
    name = kernel_package()
    say(f"downloading {name}")
    done = subprocess.run(
        ["apt-get", "download", "-q", name], cwd=part, capture_output=True, text=True, check=False
    )
    packages = list(part.glob("*.deb"))
    if done.returncode != 0 or not packages:
        raise SkippedError(f"{name} cannot be downloaded: {done.stderr.strip()[-300:]}")
    unpack(packages[0], part)
    packages[0].unlink()
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    return next(folder.glob("boot/vmlinuz-*"))


def make_disks(folder: Path) -> tuple[Path, Path]:
    """Fresh images: swap, and an ext4 file system."""
    swap, disk = folder / "swap.img", folder / "disk.img"
    for path, size in ((swap, SWAP_BYTES), (disk, DISK_BYTES)):
        path.unlink(missing_ok=True)
        with path.open("wb") as file:
            file.truncate(size)
    subprocess.run(["mkswap", "-q", swap], check=True, capture_output=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True, capture_output=True)
    return swap, disk


def vng_command(vng: Path, image: Path, swap: Path, disk: Path) -> list[str]:
    """The command that boots and runs guest.sh."""
    shared = {
        "/run/stallward/usr": Path("/usr"),
        "/run/stallward/python": Path(sys.base_prefix),
        "/run/stallward/tree": ROOT,
    }
    inside = ["sh", f"{GUEST_RESULTS}/guest.sh", GUEST_RESULTS, str(ROOT), sys.base_prefix]
    command = [str(vng), "-r", str(image), "--disable-kvm", "--force-9p", "--memory", "1G"]
    command += ["--cpus", "2", "--disk", str(swap), "--disk", str(disk)]
    for place, source in shared.items():
        command += ["--rodir", f"{place}={source}"]
    command += ["--rwdir", f"{GUEST_RESULTS}={RESULTS}", "-v", "--", shlex.join(inside)]
    return command


class Follower:
    """Copies what is appended to a file to standard output."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def copy(self) -> None:
        """Copy what is new."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        sys.stdout.write(data.decode("utf-8", "replace"))
        sys.stdout.flush()


def run_bounded(
    command: Sequence[str], *, console: Path, follow: Path, env: dict[str, str], limit_s: float
) -> bool:
    """Run ``command`` on a terminal of its own until it ends; kill all of it at ``limit_s``.

    Args:
        command: What to run; virtme-ng wants a terminal.
        console: Where the terminal's output goes.
        follow: A file that is copied to standard output while it grows.
        env: The environment.
        limit_s: Hard bound.

    Returns:
        Whether it ended by itself.
    """
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    follower = Follower(follow)
    deadline_s = time.monotonic() + limit_s
    # timeout(1) ends it even if this process is killed.
    bounded = ["timeout", "--kill-after=5", str(limit_s + 10), *command]
    with console.open("wb") as log:
        process = subprocess.Popen(
            bounded, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
        )
        os.close(theirs)
        try:
            while process.poll() is None and time.monotonic() < deadline_s:
                time.sleep(0.1)
                log.write(_read_all(ours))
                follower.copy()
            return process.poll() is not None
        finally:
            kill_session(process)
            log.write(_read_all(ours))
            os.close(ours)
            follower.copy()


def _read_all(fd: int) -> bytes:
    data = b""
    while True:
        try:
            piece = os.read(fd, 65536)
        except OSError:  # nothing more, or the other end is closed
            return data
        if not piece:
            return data
        data += piece


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything in the session that it leads, qemu among it."""
    for number, wait_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
        members = _session(process.pid)
        for pid in members:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        deadline_s = time.monotonic() + wait_s
        while _session(process.pid) and time.monotonic() < deadline_s:
            process.poll()
            time.sleep(0.02)
    process.wait()


def _session(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def verdict(results: Path, console: Path, *, ended: bool) -> int:
    """The exit status of a run: what the guest wrote, or 1 with the console's last lines."""
    status = results / "status"
    if status.exists() and status.read_text().strip().isdigit():
        return int(status.read_text())
    say("the machine did not finish" if ended else "the machine hung and was killed")
    for name, path in (("guest.log", results / "guest.log"), ("console", console)):
        text = path.read_text("utf-8", "replace") if path.exists() else ""
        for line in text.splitlines()[-25:]:
            say(f"{name}: {line}")
    return 1


def warm_up(arguments: Sequence[str], env: dict[str, str]) -> None:
    """Have Python's byte code written: nothing can be written from inside."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *arguments]
    subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=False, timeout=300)


def main(arguments: Sequence[str]) -> int:
    """Boot and run; returns the exit status."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    vng = BUILD / "tools" / "bin" / "vng"
    os.environ["PATH"] = f"{vng.parent}:{path}"  # vng looks for its own parts there
    try:
        check_tools(path, vng)
        image = fetch_kernel(BUILD / "kernel")
    except SkippedError as error:
        say(f"SKIPPED, nothing was tested on cgroup v2: {error}")
        return 0
    chosen = tuple(arguments) or DEFAULT_ARGUMENTS
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("guest.sh"), RESULTS)
    (RESULTS / "arguments").write_text(shlex.join(chosen))
    warm_up(chosen, dict(os.environ))
    swap, disk = make_disks(BUILD)
    scratch = tempfile.TemporaryDirectory(dir=BUILD)  # virtme-ng leaves a file behind
    console = BUILD / "console.log"
    say(f"booting {image.name} (console: {console.relative_to(ROOT)})")
    try:
        # Elsewhere than the tree: its mount is made anew inside.
        os.chdir("/")
        ended = run_bounded(
            vng_command(vng, image, swap, disk),
            console=console,
            follow=RESULTS / "pytest.log",
            env={**os.environ, "TMPDIR": scratch.name},
            limit_s=LIMIT_S,
        )
    finally:
        scratch.cleanup()
        swap.unlink()
        disk.unlink()
    return verdict(RESULTS, console, ended=ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
