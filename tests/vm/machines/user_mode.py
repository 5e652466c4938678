"""A User-mode Linux machine: a kernel that is a program, and runs at the processor's own speed.

Its root is this machine's own file system, read-only but for one folder. Its processes are
processes of this machine, in a pid namespace that ends with whoever started it, so that nothing
stays behind even after ``kill -9``.

A process of it may hold about 250 MB: each page that is not beside its neighbour is a mapping of
its own here, and vm.max_map_count allows 65530. The tests need less, so that is left as it is.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from bounded_run import UNTIL_ITS_PARENT_ENDS

from machines.kernel_source import build_kernel
from machines.machine import Boot, SkippedError

TOOLS: Final = {
    "mkfs.ext4": "e2fsprogs",
    "mkswap": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}


class UserMode:
    """The User-mode Linux machine.

    Args:
        build: The folder for the kernel.
    """

    name = "user-mode"
    limit_s = 20 * 60.0
    """It takes three minutes on two cores that do nothing else, and eleven beside a load of 13."""

    def __init__(self, build: Path) -> None:
        self._build = build
        self._kernel = build / "none"

    def prepare(self) -> str:
        """Build the kernel unless it is there; returns its name."""
        if os.geteuid() != 0:
            raise SkippedError("only root may give User-mode Linux a pid namespace that ends it")
        lacking = [f"{c} (package {p})" for c, p in TOOLS.items() if not shutil.which(c)]
        if lacking:
            raise SkippedError(
                f"not installed: {', '.join(lacking)}; as root, make test-vm does it"
            )
        self._kernel = build_kernel(self._build)
        return f"{self._kernel.name}, User-mode Linux"

    def command(self, boot: Boot) -> list[str]:
        """The command that boots and runs user_mode.sh as the first process."""
        start = Path(__file__).with_name("user_mode.sh")
        inside = [str(start), str(boot.results), str(boot.tree), sys.base_prefix]
        return [
            *UNTIL_ITS_PARENT_ENDS,
            *("unshare", "--pid", "--fork", "--kill-child", "--"),
            *("env", "TMPDIR=/dev/shm", str(self._kernel)),  # its memory is a file without a name
            *(f"mem={boot.memory_mib}M", f"ncpus={boot.cpus}", "seccomp=on"),
            *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"),
            *(f"ubd0={boot.swap}", f"ubd1={boot.disk}"),
            *("con0=fd:0,fd:1", "con=null", f"uml_dir={boot.scratch}", "umid=tests"),
            *("init=/bin/sh", "--", *inside),
        ]
