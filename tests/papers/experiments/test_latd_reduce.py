"""What is kept of a run of the latd experiments."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.env.recording.recording import Recording, Requests, Units
from stallward.env.recording.run_info import NodeInfo, RunInfo
from stallward.papers.experiments.latd.resident import ResidentReading, resident_bytes
from stallward.papers.experiments.latd.session import reduce_run

BEGIN_S, MEASURED_S, END_S = 100.0, 104.0, 110.0
TICKS_S = np.arange(BEGIN_S, END_S + 0.01, 0.5)


def recording(**changed: object) -> Recording:
    """A run of 4 s of burn-in and 6 s measured, in which everything grows evenly."""
    after_s = TICKS_S - BEGIN_S
    run = RunInfo(
        scenario="latd-anon-once-99",
        condition="together",
        arm="none",
        seed=1,
        start_s=BEGIN_S,
        end_s=END_S,
        burn_in_s=MEASURED_S - BEGIN_S,
        sandbox_bytes=640 << 20,
        slo_ms=100.0,
        node=NodeInfo(kind="hybrid", kernel="6.18", cpu_count=2, memory_total_bytes=8 << 30),
        slot_names=("hog",),
        stolen_share=0.02,
    )
    found = Recording(
        path=Path("nowhere"),
        run=run,
        ticks={
            "time_s": TICKS_S,
            "protected_page_cache_hits": 1000.0 + 30.0 * after_s,
            "protected_page_cache_misses": 500.0 + 10.0 * after_s,
            "zone_file_bytes": 1e6 * after_s,
            "zone_memory_usage_bytes": 2e6 * after_s,
            "slot0_stopped_processes": (after_s >= 7.0).astype(float),
            "slot0_processes": np.ones(after_s.size),
        },
        actions={"time_s": TICKS_S, "applied": np.array([""] * TICKS_S.size, dtype=object)},
        requests=Requests(
            scheduled_s=np.array([101.0, 103.9, 105.0, 106.0, 109.0]),
            # The second waits and is asked for in the measured part; the last never is.
            start_s=np.array([101.0, 104.5, 105.0, 106.0, 110.0]),
            end_s=np.array([101.2, 104.6, 105.3, 110.0, 110.0]),
            ok=np.array([True, True, True, False, False]),
        ),
        units=Units(
            slot=np.array([0, 0], dtype=np.int32),
            time_s=np.array([104.0, 110.0]),
            units=np.array([0.0, 600.0]),
        ),
    )
    return replace(found, **changed)  # type: ignore[arg-type]


RESIDENT = [
    ResidentReading(time_s=time_s, resident_bytes=(1000, hog))
    for time_s, hog in ((99.0, 0), (102.0, 0), (107.0, 600), (111.0, 600))
]


def test_a_latency_counts_from_when_the_detector_is_asked() -> None:
    run = reduce_run(recording(), RESIDENT)
    assert run.request_s == (0.5, 1.0, 2.0)
    assert run.latency_ms == pytest.approx((100.0, 300.0, 4000.0))
    assert run.unfinished == 1, "the last one that was asked for; its latency is a lower bound"


def test_lookups_are_those_of_the_measured_part() -> None:
    run = reduce_run(recording(), RESIDENT)
    assert run.detector_lookups is not None
    assert (run.detector_lookups.hits, run.detector_lookups.misses) == (180, 60)
    assert run.zone_lookups is None, "nothing was counted there"


def test_memory_is_against_the_images_that_were_asked_for() -> None:
    memory = reduce_run(recording(), RESIDENT).memory
    assert memory.images == (1, 4)
    assert (memory.detector_bytes, memory.hog_bytes) == ((1000, 1000), (0, 600))
    assert memory.cache_bytes == (2_000_000, 7_000_000)
    assert memory.used_bytes == (4_000_000, 14_000_000)


def test_the_hog_is_followed() -> None:
    run = reduce_run(recording(), RESIDENT)
    assert run.work_mib_per_s == pytest.approx(100.0)
    assert run.stopped_share == pytest.approx(7 / 13)
    assert (run.terminated, run.stolen_share) == (0, 0.02)
    ended = np.array([""] * TICKS_S.size, dtype=object)
    ended[5] = '[["terminate:hog", "SIGTERM", true, "", 0.1]]'
    actions = {"time_s": TICKS_S, "applied": ended}
    assert reduce_run(recording(actions=actions), RESIDENT).terminated == 1


def test_the_detector_alone_has_no_hog() -> None:
    alone = replace(recording().run, condition="alone", slot_names=("hog",))
    run = reduce_run(recording(run=alone), RESIDENT)
    assert run.work_mib_per_s is None


def test_why_nothing_was_counted_is_kept() -> None:
    told = replace(recording().run, missing=("psi: off", "page cache by eBPF: not permitted"))
    assert reduce_run(recording(run=told), RESIDENT).not_counted == (
        "page cache by eBPF: not permitted"
    )


def test_resident_sets_of_a_group_add_up(tmp_path: Path) -> None:
    for pid, pages in ((7, 10), (8, 5)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "statm").write_text(f"99 {pages} 3 1 0 2 0\n")

    class Group:
        def pids(self, *, recursive: bool) -> tuple[int, ...]:
            return (7, 8, 9)  # the last one has ended

    group: Cgroup = Group()  # type: ignore[assignment]
    assert resident_bytes(group, tmp_path) == 15 * os.sysconf("SC_PAGE_SIZE")
