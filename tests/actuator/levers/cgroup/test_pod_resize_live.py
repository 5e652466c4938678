"""A pod's group of our own, which is limited while a "kubelet" resizes it."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from stallward.actuator.ipc.shared_memory import SharedMemory
from stallward.actuator.journal.entries import NOTABLE, FileValue, JournalEntry, Noted
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.memory.limit_writes import write_watched
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.lever_set import LeverOptions, LeverSet
from stallward.agent.desired import MIB, RELEASED, DesiredState, SlotDesire

pytestmark = pytest.mark.live

PATIENCE_S = 20.0
FIRST, SMALLER, LARGER, OURS = (size * MIB for size in (400, 120, 600, 200))
_WRITES = """
import os, sys, time
for entry in sys.argv[2:]: open(entry, "w").write("0")
block = bytes(1 << 20)
file = open(sys.argv[1], "wb", buffering=0)
for _ in range(300): file.write(block)
os.fsync(file.fileno())
print(flush=True)
time.sleep(60)
"""


class Pod:
    """The groups that a kubelet makes of a pod with one container, limited to 400 MiB."""

    def __init__(self, scratch: Path) -> None:
        self.hierarchy = require(Paths())
        self.zone = self.hierarchy.group(f"stallward-test-{os.getpid()}/kubepods")
        self.app, self.group = self.zone.child("app"), self.zone.child("pod1")
        for group in (self.zone, self.app, self.group, self.group.child("c1")):
            group.create()
        folder = self.group.memory_dir
        assert folder is not None
        self.v1 = self.hierarchy.kind != "v2"
        self.limit = folder / ("memory.limit_in_bytes" if self.v1 else "memory.max")
        self.limit.write_text(str(FIRST))
        self.memory = SharedMemory.make(scratch / "journal", Paths(), ("b0",))
        self.journal: dict[JournalEntry, JournalEntry] = {}
        self.levers = LeverSet(
            Paths(),
            self.hierarchy,
            self.zone,
            (self.app,),
            (self.group,),
            1000 * MIB,
            self._send,
            self._release,
            self._touch,
            options=LeverOptions(aside_s=0.5),
        )
        self._send(*self.levers.originals())
        self.file = scratch / "data"
        self.process: subprocess.Popen[bytes] | None = None

    def _send(self, *entries: JournalEntry) -> None:
        for entry in entries:
            self.journal[entry] = entry
            if isinstance(entry, NOTABLE):
                self.journal[entry] = Noted(entry, len(self.journal))

    def _release(self, *entries: JournalEntry) -> None:
        for entry in entries:
            self._touch(entry, False, ())

    def _touch(self, entry: JournalEntry, moved: bool, values: object) -> None:
        noted = self.journal[entry]
        if isinstance(noted, Noted):
            if moved:
                self.memory.touch(noted.place, values)  # type: ignore[arg-type]
            else:
                self.memory.settle(noted.place)

    def left(self) -> tuple[JournalEntry, ...]:
        """What the guardian would undo of the limit."""
        entries = self.memory.in_force(self.journal.values())
        return tuple(
            e
            for e in entries
            if isinstance(e, Noted)
            and isinstance(e.entry, FileValue)
            and e.entry.path == self.limit
        )

    def fill(self) -> None:
        """Have a process read 300 MiB of a file into the pod's page cache."""
        entries = [str(folder / "cgroup.procs") for folder in self.group.child("c1").member_dirs]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WRITES, str(self.file), *entries], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"\n"

    def now(self) -> int:
        return int(self.limit.read_text())

    def follow(self, state: DesiredState, until: Callable[[], bool]) -> None:
        """Apply again and again, as a loop does, until ``until``."""
        deadline = time.monotonic() + PATIENCE_S
        self.levers.apply(state)
        while not until():
            assert time.monotonic() < deadline, self.now()
            time.sleep(0.01)
            self.levers.apply(state)
        for worker in (getattr(lever, "_worker", None) for lever in self.levers._every):
            assert worker is None or worker.wait(deadline)

    def close(self) -> None:
        self.levers.restore()
        self.zone.kill()
        if self.process is not None:
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
        self.zone.remove()


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    made = Pod(tmp_path)
    try:
        yield made
    finally:
        made.close()


def limited(pod: Pod) -> DesiredState:
    """The limit that is written into the kubelet's own file, of either kind of node."""
    wish = SlotDesire(limit_bytes=OURS) if pod.v1 else SlotDesire(hard_limit_bytes=OURS)
    return DesiredState(slots=(wish,))


@pytest.mark.parametrize("resized", [SMALLER, LARGER])
def test_the_resized_limit_is_the_original(pod: Pod, resized: int) -> None:
    state = limited(pod)
    pod.follow(state, lambda: pod.now() == OURS)
    pod.limit.write_text(str(resized))
    pod.follow(state, lambda: not pod.left())
    assert pod.now() == resized
    again = time.monotonic() + 1.0  # it steps aside for half a second
    pod.follow(state, lambda: time.monotonic() > again and pod.now() == min(OURS, resized))
    pod.follow(RELEASED, lambda: not pod.left())
    assert pod.now() == resized


@pytest.mark.parametrize("resized", [SMALLER, LARGER])
def test_the_resized_limit_outlives_the_daemon(pod: Pod, resized: int) -> None:
    """Loop and guardian die after the kubelet wrote and before the daemon saw it."""
    pod.follow(limited(pod), lambda: pod.now() == OURS)
    assert pod.left()
    pod.limit.write_text(str(resized))
    assert restore(pod.left(), Paths()) == ()
    assert pod.now() == resized
    pod.limit.write_text(str(OURS))
    assert restore(pod.left(), Paths()) == ()
    assert pod.now() == FIRST, "a limit of ours is undone as ever"


def test_our_limit_does_not_keep_the_kubelet_from_resizing(pod: Pod) -> None:
    """What it writes takes effect at once, up and down, in the pod and in its container."""
    pod.fill()
    container = pod.group.child("c1").memory_dir
    assert container is not None
    pod.follow(limited(pod), lambda: pod.now() == OURS)
    for size in (LARGER, SMALLER, FIRST):
        for path in (pod.limit, container / pod.limit.name):
            path.write_text(str(size))
            assert int(path.read_text()) == size


def test_our_own_writes_are_no_resize(pod: Pod) -> None:
    for number in range(300):
        value = str((100 + number % 7) * MIB)
        assert write_watched(pod.limit, value, partial(operator.eq, value)) is None


def test_a_resize_during_a_write_is_seen(pod: Pod) -> None:
    """A v1 write reclaims 300 MiB before it takes effect; the kubelet writes meanwhile."""
    if not pod.v1:
        pytest.skip("on v2 a limit takes effect before its write reclaims")
    for _ in range(20):
        pod.limit.write_text(str(FIRST))
        pod.fill()
        resized = threading.Event()

        def kubelet(resized: threading.Event = resized) -> None:
            time.sleep(0.005)
            if pod.now() == FIRST:  # else the write was faster
                pod.limit.write_text(str(LARGER))
                resized.set()

        thread = threading.Thread(target=kubelet)
        thread.start()
        theirs = write_watched(pod.limit, str(20 * MIB), lambda one: one == str(20 * MIB))
        thread.join()
        assert pod.process is not None
        pod.zone.child("pod1").kill()
        pod.process.wait()
        assert pod.process.stdout is not None
        pod.process.stdout.close()
        if resized.is_set() and pod.now() == 20 * MIB:
            assert theirs == str(LARGER)
            return
    pytest.skip("each write was faster than the kubelet")
