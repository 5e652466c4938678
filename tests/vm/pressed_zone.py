"""A zone of real cgroup v2 and small programs that press on each other in it.

All functions wait for a state, with bounds that an emulated machine keeps easily.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy

MIB = 1 << 20

SETTINGS = (
    "cgroup.freeze",
    "cpu.max",
    "cpu.weight",
    "io.bfq.weight",
    "io.max",
    "io.weight",
    "memory.high",
    "memory.low",
    "memory.max",
    "memory.min",
    "memory.swap.max",
)
KNOBS = (
    "dirty_background_bytes",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_ratio",
    "overcommit_memory",
    "swappiness",
)

# Touches the given number of MiB of its own memory again and again.
HOG = """
import mmap, sys
size = int(sys.argv[1]) << 20
held = mmap.mmap(-1, size)
print(flush=True)
while True:
    for at in range(0, size, 4096):
        held[at] = 1
"""

# Reads a file again and again, and counts its rounds in another file.
READER = """
import mmap, os, sys, time
with open(sys.argv[1], "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
rounds = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
print(flush=True)
done = 0
while True:
    for at in range(0, len(pages), 4096):
        pages[at]
    done += 1
    os.pwrite(rounds, b"%d" % done, 0)
    time.sleep(float(sys.argv[3]))
"""

IDLE = "import time; print(flush=True); time.sleep(3600)"
BUSY = "print(flush=True)\nwhile True: pass"


def wait_for(condition: Callable[[], object], timeout_s: float = 60.0) -> bool:
    """Poll a condition until it is true; returns whether it became true."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


@dataclass(slots=True, kw_only=True)
class Zone:
    """A limited parent group with an application and two background groups in it."""

    zone: Cgroup
    app: Cgroup
    slots: tuple[Cgroup, Cgroup]
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def hierarchy(self) -> Hierarchy:
        """The hierarchy of the groups."""
        return self.zone.hierarchy

    def file(self, group: Cgroup, name: str) -> Path:
        """The path of a kernel file of a group."""
        assert group.unified_dir is not None
        return group.unified_dir / name

    def read(self, group: Cgroup, name: str) -> str:
        """The content of a kernel file of a group."""
        return self.file(group, name).read_text().strip()

    def number(self, group: Cgroup, name: str, key: str) -> int:
        """The number behind a key in a flat keyed file."""
        table = dict(line.split() for line in self.read(group, name).splitlines())
        return int(table[key])

    def settings(self) -> dict[str, str]:
        """All settings that a daemon may change, as text; ``T`` is a stopped process."""
        texts = {}
        for group in (self.zone, self.app, *self.slots):
            for name in SETTINGS:
                path = self.file(group, name)
                if path.exists():
                    texts[str(path)] = path.read_text().strip()
        for name in KNOBS:
            texts[f"vm.{name}"] = Path("/proc/sys/vm", name).read_text().strip()
        for process in self.processes:
            stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            score = Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip()
            texts[f"process {process.pid}"] = f"{'T' if stat[0] == 'T' else 'runs'} {score}"
        return texts

    def untouched(self, before: dict[str, str]) -> bool:
        """Whether all settings are as in ``before``; processes started since need only run."""
        return all(value == before.get(key, "runs 0") for key, value in self.settings().items())

    def start(self, group: Cgroup, code: str, *arguments: object) -> subprocess.Popen[bytes]:
        """Run Python code in a group; returns when it has printed a line."""
        enter = f'echo $$ >"{self.file(group, "cgroup.procs")}"; exec "$@"'
        words = [str(word) for word in arguments]
        # Importing site would take half a second on this machine.
        python = [sys.executable, "-S", "-E", "-c", code, *words]
        process = subprocess.Popen(["sh", "-c", enter, "sh", *python], stdout=subprocess.PIPE)
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n", "the program did not start"
        return process

    def data(self, name: str, size_mib: int) -> Path:
        """A file on the disk without a page in the cache."""
        path = self.folder / name
        with path.open("wb") as file:
            file.write(os.urandom(MIB) * size_mib)
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return path

    def press(self) -> Path:
        """Start an application and two background groups that need more memory than the zone has.

        The application and the hog alone need more, so that the application stalls whichever
        files the kernel reclaims first. Returns the file in which it counts its rounds.
        """
        rounds = self.folder / "rounds"
        self.start(self.app, READER, self.data("app.data", 40), rounds, 0.02)
        self.start(self.slots[0], HOG, 64)
        self.start(self.slots[1], READER, self.data("slot1.data", 64), os.devnull, 0)
        return rounds
