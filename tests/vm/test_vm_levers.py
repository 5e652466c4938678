"""Every lever on real cgroup v2 writes its setting, has its effect, and is put back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from pressed_zone import BUSY, HOG, IDLE, MIB, READER, Zone, wait_for

from stallward.actuator.journal.entries import JournalEntry
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.lever_set import LeverOptions, LeverSet
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import DesiredState, SlotDesire

pytestmark = pytest.mark.vm


# Advice is about private pages; an anonymous mmap of Python is shared memory.
PRIVATE = "held = b'x' * (32 << 20)\nprint(flush=True)\nwhile True: held[::4096]"


class Bench:
    """A lever set on a zone, and the entries that it sent to the journal."""

    def __init__(self, zone: Zone, options: LeverOptions | None = None) -> None:
        self.zone = zone
        self.sent: list[JournalEntry] = []
        self.levers = LeverSet(
            Paths(),
            zone.hierarchy,
            zone.zone,
            (zone.app,),
            zone.slots,
            96 * MIB,
            self.sent.append,
            options=options,
        )
        self.originals = self.levers.originals()

    def hold(self, desired: DesiredState, lever: str, timeout_s: float = 60.0) -> None:
        """Apply a state, tick by tick, until a lever reports a result.

        That the kernel has not finished yet is none: a busy machine takes long.
        """
        results: list[LeverResult] = []
        deadline_s = time.monotonic() + timeout_s
        while not any(r.lever.startswith(lever) for r in results):
            applied = self.levers.apply(desired)
            results += [r for r in applied if not (r.error or "").startswith("pending")]
            time.sleep(0.05)
            assert time.monotonic() < deadline_s, f"{lever} reported nothing"
        assert [r.error for r in results if not r.ok] == []


@pytest.fixture
def bench(zone: Zone) -> Iterator[Bench]:
    made = Bench(zone)
    yield made
    made.levers.restore()


# Field of a slot's desire -> its value, the lever, its file, and the file's content then.
SETTINGS: dict[str, tuple[object, str, str, str]] = {
    "paused": (True, "pause:", "cgroup.freeze", "1"),
    "limit_bytes": (24 * MIB, "limit:", "memory.high", str(24 * MIB)),
    "hard_limit_bytes": (40 * MIB, "hard_limit:", "memory.max", str(40 * MIB)),
    "swap_max_bytes": (8 * MIB, "swap_max:", "memory.swap.max", str(8 * MIB)),
    "cpu_weight": (7, "cpu_weight:", "cpu.weight", "7"),
    "cpu_max_cores": (0.25, "cpu_max:", "cpu.max", "25000 100000"),
    "io_weight": (13, "io_weight:", "io.bfq.weight", "default 13"),
    "io_max_bytes_per_s": (4 * MIB, "io_max:", "io.max", f"rbps={4 * MIB} wbps={4 * MIB}"),
}
# Levers that act on processes, or once, have no file. They have their own tests below.
ACTIONS = {"reclaim_to_bytes", "nice", "cpus", "page_advice", "terminated"}


def test_every_lever_of_a_slot_is_tested_here() -> None:
    assert {f.name for f in fields(SlotDesire)} == set(SETTINGS) | ACTIONS


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("crashed", [False, True], ids=["released", "crashed"])
def test_a_setting_is_written_and_put_back(bench: Bench, name: str, *, crashed: bool) -> None:
    value, lever, file, expected = SETTINGS[name]
    zone, slot = bench.zone, bench.zone.slots[0]
    zone.start(slot, IDLE)
    before = zone.read(slot, file)
    desire = SlotDesire(**{name: value})  # type: ignore[arg-type]
    bench.hold(DesiredState(slots=(desire,)), lever)
    assert wait_for(lambda: expected in zone.read(slot, file)), zone.read(slot, file)
    for other in (zone.app, zone.slots[1], zone.zone):
        assert expected not in zone.read(other, file), "another group was changed, too"
    if crashed:  # as a guardian does, from the entries that it got before the change
        assert restore((*bench.originals, *bench.sent), Paths()) == ()
    else:
        bench.levers.restore()
        assert bench.levers.held() == ()
    assert zone.read(slot, file) == before


@pytest.mark.parametrize("hard", [False, True], ids=["low", "min"])
def test_protection_goes_to_the_application_alone_and_back(zone: Zone, *, hard: bool) -> None:
    bench = Bench(zone, LeverOptions(hard_protection=(hard,)))
    lever, file, other = "memory_low", "memory.low", "memory.min"
    if hard:
        lever, file, other = "memory_min", "memory.min", "memory.low"
    bench.hold(DesiredState(protected_low_bytes=20 * MIB), lever)
    assert zone.read(zone.app, file) == str(20 * MIB)
    assert zone.read(zone.app, other) == "0"
    assert zone.read(zone.slots[0], file) == "0"
    bench.levers.restore()
    assert zone.read(zone.app, file) == "0"


def test_a_soft_limit_squeezes_a_paused_hog_and_it_survives(bench: Bench) -> None:
    zone, slot = bench.zone, bench.zone.slots[0]
    process = zone.start(slot, HOG, 64)
    assert wait_for(lambda: int(zone.read(slot, "memory.current")) > 60 * MIB)
    bench.hold(DesiredState(slots=(SlotDesire(paused=True, limit_bytes=16 * MIB),)), "limit:")
    assert wait_for(lambda: int(zone.read(slot, "memory.current")) <= 17 * MIB)
    assert int(zone.read(slot, "memory.swap.current")) > 30 * MIB
    assert zone.number(slot, "cgroup.events", "frozen") == 1
    bench.levers.restore()
    assert wait_for(lambda: int(zone.read(slot, "memory.current")) > 60 * MIB), (
        "the group does not run again"
    )
    assert process.poll() is None
    assert zone.number(slot, "memory.events", "oom_kill") == 0


def test_a_paused_group_does_no_work(bench: Bench) -> None:
    zone, slot = bench.zone, bench.zone.slots[0]
    zone.start(slot, BUSY)
    bench.hold(DesiredState(slots=(SlotDesire(paused=True),)), "pause:")
    assert wait_for(lambda: zone.number(slot, "cgroup.events", "frozen") == 1)
    used = zone.number(slot, "cpu.stat", "usage_usec")
    time.sleep(0.5)
    assert zone.number(slot, "cpu.stat", "usage_usec") == used
    bench.levers.restore()
    assert wait_for(lambda: zone.number(slot, "cpu.stat", "usage_usec") > used)


def test_a_reclaim_happens_once_and_leaves_no_limit(bench: Bench) -> None:
    zone, slot = bench.zone, bench.zone.slots[0]
    zone.start(slot, READER, zone.data("data", 48), os.devnull, 3600)
    assert wait_for(lambda: int(zone.read(slot, "memory.current")) > 40 * MIB)
    bench.hold(DesiredState(slots=(SlotDesire(reclaim_to_bytes=16 * MIB),)), "reclaim:")
    assert wait_for(lambda: int(zone.read(slot, "memory.current")) <= 20 * MIB)
    assert (zone.read(slot, "memory.high"), zone.read(slot, "memory.max")) == ("max", "max")


def test_reclaim_takes_a_swappiness_since_kernel_6_9(zone: Zone) -> None:
    """Kernel 6.1 refuses it, so a writer must check first, and do without it."""
    reclaim = zone.file(zone.slots[0], "memory.reclaim")
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    zone.start(zone.slots[0], HOG, 16)
    if release < (6, 9):
        with pytest.raises(OSError, match="Invalid argument"):
            reclaim.write_text("1M swappiness=0")
    else:
        reclaim.write_text("1M swappiness=200")
    reclaim.write_text("1M")


def test_a_cpu_limit_throttles_and_a_disk_limit_is_on_every_disk(bench: Bench) -> None:
    zone, slot = bench.zone, bench.zone.slots[0]
    zone.start(slot, BUSY)
    desire = SlotDesire(cpu_max_cores=0.1, io_max_bytes_per_s=MIB)
    bench.hold(DesiredState(slots=(desire,)), "cpu_max:")
    assert wait_for(lambda: zone.number(slot, "cpu.stat", "throttled_usec") > 0)
    disks = {p.with_name("dev").read_text().strip() for p in Path("/sys/block").glob("*/device")}
    assert wait_for(
        lambda: disks <= {line.split()[0] for line in zone.read(slot, "io.max").splitlines()}
    )


def test_a_setting_that_another_program_changed_is_not_put_back(bench: Bench) -> None:
    zone, slot = bench.zone, bench.zone.slots[0]
    bench.hold(DesiredState(slots=(SlotDesire(limit_bytes=32 * MIB),)), "limit:")
    zone.file(slot, "memory.high").write_text(str(50 * MIB))
    bench.levers.restore()
    assert zone.read(slot, "memory.high") == str(50 * MIB)


def test_nice_and_cpus_reach_every_thread_and_come_back(bench: Bench) -> None:
    zone, slot = bench.zone, bench.zone.slots[0]
    pid = zone.start(slot, BUSY).pid
    own = os.sched_getaffinity(pid)
    assert own == {0, 1}
    bench.hold(DesiredState(slots=(SlotDesire(nice=7, cpus=(1,)),)), "nice:")
    assert wait_for(lambda: os.getpriority(os.PRIO_PROCESS, pid) == 7)
    assert wait_for(lambda: os.sched_getaffinity(pid) == {1})
    child = zone.start(slot, IDLE).pid  # joins the group later
    state = DesiredState(slots=(SlotDesire(nice=7, cpus=(1,)),))
    assert wait_for(
        lambda: (bench.levers.apply(state), os.getpriority(os.PRIO_PROCESS, child) == 7)[1]
    )
    bench.levers.restore()
    assert [os.getpriority(os.PRIO_PROCESS, one) for one in (pid, child)] == [0, 0]
    assert [os.sched_getaffinity(one) for one in (pid, child)] == [own, own]


def test_after_a_crash_threads_are_reset_from_the_journal(bench: Bench) -> None:
    zone, slot = bench.zone, bench.zone.slots[0]
    pid = zone.start(slot, BUSY).pid
    bench.hold(DesiredState(slots=(SlotDesire(nice=7),)), "nice:")
    assert wait_for(lambda: os.getpriority(os.PRIO_PROCESS, pid) == 7)
    assert restore((*bench.originals, *bench.sent), Paths()) == ()
    assert os.getpriority(os.PRIO_PROCESS, pid) == 0


def test_pages_of_a_paused_group_go_to_swap_and_come_back_on_its_account(bench: Bench) -> None:
    zone, slot = bench.zone, bench.zone.slots[0]
    zone.start(slot, PRIVATE)
    assert wait_for(lambda: int(zone.read(slot, "memory.current")) > 30 * MIB)
    bench.hold(DesiredState(slots=(SlotDesire(paused=True),)), "pause:")
    assert wait_for(lambda: zone.number(slot, "cgroup.events", "frozen") == 1)
    bench.hold(DesiredState(slots=(SlotDesire(paused=True, page_advice="pageout"),)), "pages:")
    # Pages that are written stay charged, as swap cache, until memory is needed.
    assert wait_for(lambda: int(zone.read(slot, "memory.swap.current")) > 28 * MIB)
    zone.file(slot, "memory.reclaim").write_text(str(24 * MIB))
    assert int(zone.read(slot, "memory.current")) < 12 * MIB
    bench.hold(DesiredState(slots=(SlotDesire(paused=True, page_advice="willneed"),)), "pages:")
    assert wait_for(lambda: int(zone.read(slot, "memory.current")) > 28 * MIB)
    assert zone.number(slot, "cgroup.events", "frozen") == 1
    bench.levers.restore()
    assert wait_for(lambda: int(zone.read(slot, "memory.current")) > 30 * MIB), (
        "the group does not run again"
    )


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_slot_is_terminated_and_its_neighbour_is_not(bench: Bench, *, stubborn: bool) -> None:
    zone, slot = bench.zone, bench.zone.slots[0]
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if stubborn else ""
    ended, other = zone.start(slot, ignore + IDLE), zone.start(zone.slots[1], IDLE)
    bench.hold(DesiredState(slots=(SlotDesire(terminated=True),)), "terminate:")
    number = signal.SIGKILL if stubborn else signal.SIGTERM
    assert ended.wait(60) == -number, "SIGTERM comes first, and SIGKILL only if it is ignored"
    assert other.poll() is None
    assert zone.number(slot, "cgroup.events", "populated") == 0
