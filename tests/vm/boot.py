"""Boots a Debian kernel in an emulated machine and runs the tests that need cgroup v2 there.

``.venv/bin/python tests/vm/boot.py [PYTEST ARGUMENT...]`` (what ``make test-vm`` runs). It needs
no root and no KVM. The kernel is unpacked from its package into build/vm. virtme-ng boots it on
this machine's own file system, which is read-only but for one folder (build/vm/results). The
machine is emulated, so that it is right for behaviour and wrong for timing.

The exit status is that of pytest inside; 1 if the machine did not finish; 0, with a line that
names what is missing, where it cannot be booted at all.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from bounded_run import run_bounded
from kernel_package import SkippedError, fetch_kernel, say

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build" / "vm"
RESULTS: Final = BUILD / "results"
GUEST_RESULTS: Final = "/run/stallward/results"
LIMIT_S: Final = 40 * 60.0
"""After so long a run is killed. It takes twelve minutes on two cores that do nothing else."""
DISK_BYTES: Final = 2 << 30
SWAP_BYTES: Final = 512 << 20
"""The size of the swap disk. Both disks are sparse files."""

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
TARGETS: Final = (
    "tests/vm/test_vm_signals.py",
    "tests/vm/test_vm_levers.py",
    "tests/actuator/kernel/test_cgroups.py",
    "tests/actuator/node/test_stall_watch.py",
    "tests/actuator/doctor/test_doctor.py",
    "tests/actuator/levers/test_levers_live.py",
    "tests/actuator/journal/test_keeper.py",
    "tests/env/sandbox/test_sandbox.py",
    "tests/vm/test_vm_daemon.py",
    "tests/vm/test_vm_systemd.py",
)
"""The tests that run inside unless arguments are given, quick ones first: those of this folder,
and live ones that hold on every kind of node. None of them imports torch."""
OPTIONS: Final = ("-raR", "--durations=10", "--timeout=1200", "-m", "vm or live")


def check_tools(path: str, vng: Path) -> None:
    """Check that the host has everything that a boot needs.

    Args:
        path: The folders in which commands are searched, as in PATH.
        vng: The virtme-ng command.

    Raises:
        SkippedError: If something is missing. The message names it and its Debian package.
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


def make_disks(folder: Path) -> tuple[Path, Path]:
    """Make fresh images of a swap disk and of an ext4 file system."""
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
    """Write Python's byte code, because nothing can be written from inside."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *arguments]
    subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=False, timeout=300)


def end_on_sigterm() -> None:
    """Let SIGTERM unwind the stack, as Ctrl-C does."""

    def unwind(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, unwind)


def main(arguments: Sequence[str]) -> int:
    """Boot and run; returns the exit status."""
    end_on_sigterm()
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    vng = BUILD / "tools" / "bin" / "vng"
    os.environ["PATH"] = f"{vng.parent}:{path}"  # vng searches its own commands there
    try:
        check_tools(path, vng)
        image = fetch_kernel(BUILD / "kernel")
    except SkippedError as error:
        say(f"SKIPPED, nothing was tested on cgroup v2: {error}")
        return 0
    return boot(vng, image, tuple(arguments) or (*OPTIONS, *TARGETS))


def boot(vng: Path, image: Path, arguments: tuple[str, ...]) -> int:
    """Run pytest in a machine.

    Args:
        vng: The virtme-ng command.
        image: The kernel.
        arguments: The arguments of pytest.

    Returns:
        Its exit status, or 1 if the machine did not finish.
    """
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("guest.sh"), RESULTS)
    (RESULTS / "arguments").write_text(shlex.join(arguments))
    warm_up(arguments, dict(os.environ))
    swap, disk = make_disks(BUILD)
    scratch = tempfile.TemporaryDirectory(dir=BUILD)  # virtme-ng leaves a file behind
    console = BUILD / "console.log"
    say(f"booting {image.name} (console: {console.relative_to(ROOT)})")
    try:
        # Not in the tree, because guest.sh mounts it again.
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
