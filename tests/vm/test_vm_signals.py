"""Every signal of cgroup v2 is there on real groups, is plausible, and moves when it must."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from pressed_zone import BUSY, HOG, IDLE, MIB, READER, Zone, wait_for

from stallward.actuator.kernel.hierarchies import detect, missing
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.node.stall_watch import StallWatch
from stallward.actuator.sensors.readers import ReadApplication
from stallward.actuator.sensors.sampler import Sampler
from stallward.agent.sample import GroupSample, NodeSample, PsiTotals, Sample

pytestmark = pytest.mark.vm

# Page-cache hits need eBPF. Sums over processes are read on request only. A group may have no
# limit. The working set is known only for groups that refault.
MAY_BE_ABSENT = {
    "memory_limit_bytes",
    "page_cache_hits",
    "page_cache_misses",
    "pss_bytes",
    "run_delay_us",
    "working_set_bytes",
}


@pytest.fixture
def sampler(zone: Zone) -> Iterator[Sampler]:
    made = Sampler(
        paths=Paths(),
        hierarchy=zone.hierarchy,
        zone=zone.zone,
        applications=[ReadApplication(target=zone.app)],
        slots=zone.slots,
        needs_processes=True,
    )
    yield made
    made.close()


def read(sampler: Sampler) -> Sample:
    sample = sampler.read(0, ())
    assert sampler.faults == ()
    return sample


def grows(sampler: Sampler, counter: Callable[[Sample], int | None]) -> bool:
    """Return whether a counter rises while it is watched."""
    first = counter(read(sampler))
    assert first is not None
    return wait_for(lambda: (counter(read(sampler)) or 0) > first)


def test_this_machine_is_cgroup_v2_with_all_controllers(zone: Zone) -> None:
    hierarchy = detect(Paths())
    assert (hierarchy.kind, hierarchy.roots) == ("v2", (Path("/sys/fs/cgroup"),))
    assert missing(Paths(), hierarchy) == ()
    for group in (zone.zone, zone.app):
        controllers = zone.read(group, "cgroup.controllers").split()
        assert {"memory", "io", "cpu", "cpuset", "pids"} <= set(controllers)


def absent(part: NodeSample | GroupSample | PsiTotals) -> set[str]:
    """Return the signals that are absent, but should not be."""
    names = set()
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, PsiTotals):
            names |= absent(value)
        elif value is None and field.name not in MAY_BE_ABSENT:
            names.add(field.name)
    return names


def test_no_signal_is_missing(zone: Zone, sampler: Sampler) -> None:
    zone.press()

    def missing_now() -> set[str]:
        sample = read(sampler)
        groups = (sample.zone, sample.protected, *sample.slots)
        return absent(sample.node) | {name for group in groups for name in absent(group)}

    # Only the machine has no such total, and nothing limits what may go to swap.
    always = {"cpu_full_us", "swap_room_bytes"}
    # Some others are known only from the second sample on.
    assert wait_for(lambda: missing_now() <= always, 5.0), missing_now()
    assert "cpu_full_us" not in absent(read(sampler).slots[0])


def test_pressure_shows_in_the_groups_that_stall_and_in_no_other(
    zone: Zone, sampler: Sampler
) -> None:
    zone.start(zone.app, IDLE)
    zone.start(zone.slots[0], IDLE)
    zone.start(zone.slots[1], HOG, 160)
    for counter in (
        lambda s: s.slots[1].psi.memory_some_us,
        lambda s: s.slots[1].psi.memory_full_us,
        lambda s: s.zone.psi.memory_some_us,
        lambda s: s.node.psi.memory_some_us,
        lambda s: s.slots[1].psi.io_some_us,
        lambda s: s.slots[1].major_faults,
        lambda s: s.slots[1].refault_anon_pages,
        lambda s: s.node.swap_in_pages,
        lambda s: s.node.swap_out_pages,
        lambda s: s.zone.max_events,
    ):
        assert grows(sampler, counter)
    sample = read(sampler)
    hog, idle = sample.slots[1], sample.slots[0]
    assert (idle.psi.memory_some_us or 0) < (hog.psi.memory_some_us or 0) / 10
    assert (hog.swap_bytes or 0) > 40 * MIB
    assert 20 * MIB < (hog.anon_bytes or 0) <= 96 * MIB
    assert (hog.memory_usage_bytes or 0) >= (hog.anon_bytes or 0) / 2
    assert (sample.zone.memory_usage_bytes or 0) <= 97 * MIB
    assert (sample.zone.memory_limit_bytes, hog.memory_limit_bytes) == (96 * MIB, None)
    assert hog.oom_kills == 0


def test_a_group_that_thrashes_has_a_working_set_above_its_usage(
    zone: Zone, sampler: Sampler
) -> None:
    zone.start(zone.slots[1], HOG, 160)
    # It can hold 96 MiB. Nearly all other pages are evicted and refaulted by turns.
    assert wait_for(lambda: (read(sampler).slots[1].working_set_bytes or 0) > 130 * MIB)


def test_file_pages_and_the_disk_are_seen(zone: Zone, sampler: Sampler) -> None:
    data = zone.data("data", 48)
    zone.start(zone.app, READER, data, os.devnull, 0.1)
    assert wait_for(lambda: (read(sampler).protected.file_bytes or 0) > 40 * MIB)
    assert wait_for(lambda: (read(sampler).protected.io_read_bytes or 0) >= 40 * MIB)
    sample = read(sampler).protected
    assert (sample.inactive_file_bytes or 0) > 0
    assert sample.swap_bytes == 0
    writer = zone.start(
        zone.slots[0],
        "import os, sys\nfile = open(sys.argv[1], 'wb')\nfile.write(bytes(8 << 20))\n"
        "file.flush()\nprint(flush=True)\nsys.stdin.read(0)\nos.fsync(file.fileno())\n"
        "import time; time.sleep(3600)",
        zone.folder / "written",
    )
    assert writer.poll() is None
    assert wait_for(lambda: (read(sampler).slots[0].io_written_bytes or 0) >= 8 * MIB)


def test_file_pages_that_come_back_are_refaults(zone: Zone, sampler: Sampler) -> None:
    zone.start(zone.slots[1], READER, zone.data("data", 128), os.devnull, 0)
    assert grows(sampler, lambda s: s.slots[1].refault_file_pages)
    assert grows(sampler, lambda s: s.slots[1].io_read_bytes)


def test_dirty_pages_are_seen(zone: Zone, sampler: Sampler) -> None:
    zone.start(
        zone.slots[0],
        "import sys, time\nprint(flush=True)\n"
        "with open(sys.argv[1], 'wb') as file:\n"
        "    while True:\n        file.seek(0); file.write(bytes(4 << 20)); time.sleep(0.1)",
        zone.folder / "dirty",
    )
    assert wait_for(lambda: (read(sampler).slots[0].dirty_bytes or 0) >= 2 * MIB)


def test_cpu_time_and_throttled_time_are_seen(zone: Zone, sampler: Sampler) -> None:
    zone.start(zone.slots[0], BUSY)
    assert grows(sampler, lambda s: s.slots[0].cpu_usage_us)
    assert read(sampler).slots[0].cpu_throttled_us == 0
    zone.file(zone.slots[0], "cpu.max").write_text("10000 100000")
    assert grows(sampler, lambda s: s.slots[0].cpu_throttled_us)
    assert grows(sampler, lambda s: s.slots[0].psi.cpu_some_us)


def test_memory_high_is_counted(zone: Zone, sampler: Sampler) -> None:
    zone.file(zone.slots[0], "memory.high").write_text(str(16 * MIB))
    zone.start(zone.slots[0], HOG, 32)
    assert grows(sampler, lambda s: s.slots[0].high_events)
    assert read(sampler).slots[0].memory_limit_bytes == 16 * MIB


def test_a_kill_for_memory_is_counted(zone: Zone, sampler: Sampler) -> None:
    zone.file(zone.slots[0], "memory.max").write_text(str(16 * MIB))
    zone.file(zone.slots[0], "memory.swap.max").write_text("0")
    zone.start(zone.slots[0], HOG, 64)
    assert wait_for(lambda: read(sampler).slots[0].oom_kills == 1)
    assert wait_for(lambda: read(sampler).zone.oom_kills == 1)  # it is read in another tick
    assert read(sampler).protected.oom_kills == 0


def test_a_frozen_group_is_seen_as_frozen(zone: Zone, sampler: Sampler) -> None:
    zone.start(zone.slots[0], BUSY)
    assert read(sampler).slots[0].frozen is False
    zone.file(zone.slots[0], "cgroup.freeze").write_text("1")
    assert wait_for(lambda: read(sampler).slots[0].frozen)
    assert read(sampler).slots[1].frozen is False


def test_processes_of_the_background_are_listed(zone: Zone, sampler: Sampler) -> None:
    process = zone.start(zone.slots[1], HOG, 32)
    processes_by_pid = {p.pid: p for p in read(sampler).processes or () if p.slot >= 0}
    assert set(processes_by_pid) == {process.pid}
    assert wait_for(
        lambda: any((p.rss_bytes or 0) > 30 * MIB for p in read(sampler).processes or ())
    )


@pytest.mark.parametrize("place", ["group", "node"])
def test_a_psi_trigger_wakes_up_under_pressure(zone: Zone, place: str) -> None:
    path = Path("/proc/pressure/memory")
    if place == "group":
        path = zone.file(zone.zone, "memory.pressure")
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(fd, b"some 20000 500000\0")
        poller = select.poll()
        poller.register(fd, select.POLLPRI)
        if place == "group":
            assert poller.poll(1500) == [], "the trigger woke up without a stall"
        zone.start(zone.slots[1], HOG, 160)
        assert poller.poll(60_000) == [(fd, select.POLLPRI)]
    finally:
        os.close(fd)


def test_the_stall_watch_is_woken_by_its_group_and_survives_the_end_of_it(zone: Zone) -> None:
    watch = StallWatch(zone.file(zone.slots[1], "memory.pressure"))
    try:
        assert (watch.missing, watch.trigger_missing) == ("", "")
        poller = select.poll()
        poller.register(watch.trigger_fd, select.POLLPRI)
        process = zone.start(zone.slots[1], HOG, 160)
        assert poller.poll(60_000)
        assert watch.has_stalled()
        process.kill()
        process.wait()
        zone.slots[1].remove(timeout_s=60)
        assert wait_for(lambda: any(event & select.POLLERR for _, event in poller.poll(0)))
        assert not watch.has_stalled()
    finally:
        watch.close()
