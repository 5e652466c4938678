"""A v1 group under a limit of the daemon waits for memory instead of being killed: on real groups.

The programs lock their pages as they touch them, so that reclaim cannot keep up, with or without
swap.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stallward.actuator.journal.entries import JournalEntry
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.lever_set import LeverSet
from stallward.agent.desired import MIB, RELEASED, DesiredState, SlotDesire

pytestmark = pytest.mark.live

LIMIT = 32 * MIB
NEEDS = 64 * MIB
LIMITED = DesiredState(slots=(SlotDesire(limit_bytes=LIMIT),))

# It enters the group, says so, and on a line of input locks its memory page by page.
PROGRAM = f"""
import ctypes, mmap, sys
for entry in sys.argv[1:]:
    open(entry, "w").write("0")
memory = mmap.mmap(-1, {NEEDS})
print("ready", flush=True)
sys.stdin.readline()
assert ctypes.CDLL(None).mlockall(7) == 0
for offset in range(0, {NEEDS}, 4096):
    memory[offset] = 1
print("done", flush=True)
sys.stdin.readline()
"""


class Site:
    """A slot with one program, under the levers of a daemon."""

    def __init__(self) -> None:
        self.hierarchy = require(Paths())
        if self.hierarchy.kind == "v2":
            pytest.skip("v2 memory.high does not kill")
        self.zone = self.hierarchy.group(f"stallward-test-{os.getpid()}/waits")
        self.app, self.slot = self.zone.child("app"), self.zone.child("bg")
        for group in (self.zone, self.app, self.slot):
            group.create()
        assert self.slot.memory_dir is not None
        self.folder: Path = self.slot.memory_dir
        self.sent: list[JournalEntry] = []
        self.levers = LeverSet(
            Paths(), self.hierarchy, self.zone, (self.app,), (self.slot,), None, self._send
        )
        self.originals = self.levers.originals()
        entries = [str(folder / "cgroup.procs") for folder in self.slot.member_dirs]
        self.program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *entries],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.reads() == b"ready\n"

    def _send(self, *entries: JournalEntry) -> None:
        self.sent += entries

    def reads(self) -> bytes:
        assert self.program.stdout is not None
        return self.program.stdout.readline()

    def go_on(self) -> None:
        assert self.program.stdin is not None
        self.program.stdin.write(b"\n")
        self.program.stdin.flush()

    def limit_and_go_on(self) -> None:
        """Limit the slot, and let its program touch twice as much."""
        self.levers.apply(LIMITED)
        self.await_(lambda: self.levers.slot_limit_settled(0), "the limit is written")
        assert "oom_kill_disable 1" in self.control()
        self.go_on()
        self.await_(lambda: self.levers.memory_waits()[0] > 0, "the kernel reports a wait")

    def control(self) -> str:
        return (self.folder / "memory.oom_control").read_text()

    def limit(self) -> int:
        return int((self.folder / "memory.limit_in_bytes").read_text())

    def await_(self, done: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + 30.0
        while not done():
            assert self.program.poll() is None, f"the program died before {what}"
            assert time.monotonic() < deadline_s, f"not so: {what}; {self.control()}"
            time.sleep(0.01)

    def close(self) -> None:
        self.levers.restore()
        self.levers.close()
        self.zone.kill()
        self.program.communicate()
        self.zone.remove()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    try:
        yield made
    finally:
        made.close()


def test_a_program_waits_under_a_limit_and_goes_on_when_it_is_raised(site: Site) -> None:
    site.limit_and_go_on()
    assert "under_oom 1" in site.control()
    site.levers.apply(DesiredState(slots=(SlotDesire(limit_bytes=4 * NEEDS),)))
    assert site.reads() == b"done\n"
    assert site.program.poll() is None
    assert "oom_kill_disable 1" in site.control(), "a limit is still in force"
    site.levers.apply(RELEASED)
    site.await_(lambda: not site.levers.held(), "everything is put back")
    assert "oom_kill_disable 0" in site.control()


def test_a_program_that_waits_when_the_daemon_stops_goes_on(site: Site) -> None:
    unlimited = site.limit()
    site.limit_and_go_on()
    site.levers.restore()
    assert site.reads() == b"done\n"
    assert (site.limit(), site.levers.held()) == (unlimited, ())
    assert "oom_kill_disable 0" in site.control()


def test_a_program_that_waits_when_everybody_dies_goes_on_after_the_restore(site: Site) -> None:
    unlimited = site.limit()
    site.limit_and_go_on()
    assert restore((*site.originals, *site.sent), Paths()) == ()
    assert site.reads() == b"done\n"
    assert site.limit() == unlimited
    assert "oom_kill_disable 0" in site.control()


def test_a_waiting_program_can_still_be_killed(site: Site) -> None:
    site.limit_and_go_on()
    site.program.send_signal(signal.SIGTERM)
    assert site.program.wait(10) == -signal.SIGTERM


def test_a_limit_is_lifted_where_another_program_lets_the_kernel_kill_again(site: Site) -> None:
    unlimited = site.limit()
    site.levers.apply(LIMITED)
    site.await_(lambda: site.levers.slot_limit_settled(0), "the limit is written")
    (site.folder / "memory.oom_control").write_text("0")
    said: list[str] = []

    def lifted() -> bool:
        said.extend(result.error for result in site.levers.apply(LIMITED) if result.error)
        return site.limit() == unlimited

    site.await_(lifted, "the limit is lifted")
    assert any("could kill" in text for text in said)
    site.go_on()
    assert site.reads() == b"done\n"


def made_inside(site: Site) -> Path:
    """Make a group in the slot, as a container runtime does; return its memory.oom_control."""
    folder = site.folder / "inside"
    folder.mkdir()
    return folder / "memory.oom_control"


def test_a_group_made_inside_meanwhile_does_not_keep_the_setting(site: Site) -> None:
    before = made_inside(site)
    before.write_text("1")  # it waits because somebody wants it to
    site.levers.apply(LIMITED)
    site.await_(lambda: site.levers.slot_limit_settled(0), "the limit is written")
    later = site.folder / "inside" / "later"
    later.mkdir()
    sibling = site.folder / "sibling"
    sibling.mkdir()
    for folder in (later, sibling):
        assert "oom_kill_disable 1" in (folder / "memory.oom_control").read_text()
    site.levers.restore()
    assert "oom_kill_disable 0" in (sibling / "memory.oom_control").read_text()
    assert "oom_kill_disable 1" in before.read_text()


def test_a_group_made_inside_is_put_back_after_everybodys_death(site: Site) -> None:
    site.levers.apply(LIMITED)
    site.await_(lambda: site.levers.slot_limit_settled(0), "the limit is written")
    inside = made_inside(site)
    assert "oom_kill_disable 1" in inside.read_text()
    assert restore((*site.originals, *site.sent), Paths()) == ()
    assert "oom_kill_disable 0" in inside.read_text()


def test_a_slot_with_a_lower_limit_of_its_own_does_not_wait_for_ours(site: Site) -> None:
    (site.folder / "memory.limit_in_bytes").write_text(str(LIMIT))
    site.levers.apply(DesiredState(slots=(SlotDesire(limit_bytes=2 * LIMIT),)))
    site.await_(lambda: site.levers.slot_limit_settled(0), "the limit is written")
    assert "oom_kill_disable 0" in site.control()


def test_a_wait_whose_alarm_was_missed_is_seen(site: Site) -> None:
    site.limit_and_go_on()
    seen = site.levers.memory_waits()[0]

    def looked() -> bool:
        site.levers.apply(LIMITED)
        return site.levers.memory_waits()[0] > seen

    site.await_(looked, "the wait that goes on is counted again")


def test_the_removal_of_a_slot_is_no_wait(site: Site) -> None:
    site.levers.apply(LIMITED)
    site.await_(lambda: site.levers.slot_limit_settled(0), "the limit is written")
    site.levers.apply(RELEASED)
    site.await_(lambda: not site.levers.held(), "everything is put back")
    site.zone.kill()
    site.program.wait()
    site.slot.remove()
    assert site.levers.memory_waits() == (0,)
