"""A machine that QEMU emulates, without KVM, with the kernel of Debian's package.

It is right for behaviour and wrong for timing. virtme-ng boots it on this machine's own file
system, read-only but for one folder.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from machines.kernel_package import fetch_kernel
from machines.machine import Boot, SkippedError

GUEST_RESULTS: Final = "/run/stallward/results"

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


def check_tools(path: str, vng: Path, tree: Path) -> None:
    """Check that the host has everything that a boot needs.

    Args:
        path: The folders in which commands are searched, as in PATH.
        vng: The virtme-ng command.
        tree: The project.

    Raises:
        SkippedError: If something is missing. The message names it and its Debian package.
    """
    if platform.machine() != "x86_64":
        raise SkippedError(f"the kernel is for x86-64, this machine is {platform.machine()}")
    if " " in str(tree):
        raise SkippedError(f"virtme-ng takes no path with a blank ({tree})")
    lacking = [f"{c} (package {p})" for c, p in TOOLS.items() if not shutil.which(c, path=path)]
    if not vng.exists():
        lacking.append("virtme-ng (PyPI)")
    if lacking:
        raise SkippedError(f"not installed: {', '.join(lacking)}; as root, make test-vm does it")


class Emulated:
    """The emulated machine.

    Args:
        build: The folder for the kernel and for virtme-ng.
        tree: The project.
    """

    name = "emulated"
    limit_s = 40 * 60.0
    """It takes twelve minutes on two cores that do nothing else."""

    def __init__(self, build: Path, tree: Path) -> None:
        self._build = build
        self._tree = tree
        self._vng = build / "tools" / "bin" / "vng"
        self._image = build / "none"

    def prepare(self) -> str:
        """Unpack the kernel unless it is there; returns its name."""
        path = os.environ["PATH"]
        check_tools(path, self._vng, self._tree)
        os.environ["PATH"] = f"{self._vng.parent}:{path}"  # vng searches its own commands there
        self._image = fetch_kernel(self._build / "kernel")
        return f"{self._image.name}, emulated"

    def command(self, boot: Boot) -> list[str]:
        """The command that boots and runs emulated.sh."""
        shared = {
            "/run/stallward/usr": Path("/usr"),
            "/run/stallward/python": Path(sys.base_prefix),
            "/run/stallward/tree": boot.tree,
        }
        start = f"{GUEST_RESULTS}/emulated.sh"
        inside = ["sh", start, GUEST_RESULTS, str(boot.tree), sys.base_prefix]
        command = [str(self._vng), "-r", str(self._image), "--disable-kvm", "--force-9p"]
        command += ["--memory", f"{boot.memory_mib}M", "--cpus", str(boot.cpus)]
        command += ["--disk", str(boot.swap), "--disk", str(boot.disk)]
        for place, source in shared.items():
            command += ["--rodir", f"{place}={source}"]
        command += ["--rwdir", f"{GUEST_RESULTS}={boot.results}", "-v", "--", shlex.join(inside)]
        return command
