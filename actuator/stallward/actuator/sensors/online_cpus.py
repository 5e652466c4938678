"""Which CPUs there are: /proc/stat has one line for each that is online."""

from __future__ import annotations

from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.paths import Paths


def read_online_cpus(paths: Paths) -> frozenset[int] | None:
    """The CPUs that are online; ``None`` if there is no telling.

    Raises:
        KernelFileError: If the file is there but cannot be read.
    """
    words = (
        line.split(b" ", 1)[0] for line in (read_bytes(paths.proc / "stat") or b"").split(b"\n")
    )
    found = frozenset(
        int(word[3:]) for word in words if word.startswith(b"cpu") and word[3:].isdigit()
    )
    return found or None
