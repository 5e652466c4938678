"""A profile: what follows from runs, and which runs are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from stallward.agent.errors import ProfileError
from stallward.agent.profile import read_profile
from stallward.agent.sample import GroupSample, PsiTotals
from stallward.evaluation.report.experiment_page import render_experiment_page
from stallward.evaluation.results.serialise import save
from stallward.lens.errors import ProfilingError
from stallward.lens.profile.figures import make_profile
from stallward.lens.profile.measure import ProfileSettings, measure_profile
from stallward.lens.profile.observed import ObservedRun, Subject
from stallward.lens.profile.page import profile_page
from stallward.lens.profile.text import headline, profile_table
from stallward.lens.profile.touched_pages import Touched

MIB = 1 << 20
NEEDED = 150 * MIB
"""What the invented application needs; it uses 200 MiB if it may."""
FAULT_US = 80


def observed(
    limit_bytes: int,
    *,
    told: bool = True,
    killed: bool = False,
    needed: int = NEEDED,
    latencies: bool = False,
) -> ObservedRun:
    """A run of 10 s: a MiB that is missing is 100 pages read back, by 50 faults, 80 us a page."""
    held = min(limit_bytes, 200 * MIB)
    pages = 100 * max(needed - limit_bytes, 0) // MIB
    stalled_us = FAULT_US * pages
    p95_ms = 10.0 + stalled_us / 1e5 if latencies else None
    samples = [
        (
            second,
            GroupSample(
                name="g",
                psi=PsiTotals(memory_some_us=1000 + round(stalled_us * second / 10)),
                memory_usage_bytes=held,
                anon_bytes=held // 4,
                file_bytes=held - held // 4,
                swap_bytes=3 * MIB if pages else 0,
                refault_file_pages=7 + round(pages * second / 10),
                refault_anon_pages=0,
                major_faults=round(pages * second / 20),
                cpu_usage_us=round(1e6 * second / 2),
            ),
        )
        for second in range(11)
    ]
    return ObservedRun(
        limit_bytes=limit_bytes,
        begin_s=0.0,
        end_s=10.0,
        s_per_work=0.01 * (1.0 + stalled_us / 1e6) if told and not killed else None,
        p95_ms=p95_ms,
        p99_ms=p95_ms,
        killed=killed,
        samples=tuple((float(second), sample) for second, sample in samples),
        threads=3,
    )


def subject(
    runs: list[tuple[int, bool]],
    *,
    told: bool = True,
    dies: int = 0,
    latencies: bool = False,
    target_ms: float | None = None,
) -> Subject:
    def run(limit_bytes: int, watched: bool) -> ObservedRun:
        runs.append((limit_bytes // MIB, watched))
        found = observed(limit_bytes, told=told, killed=limit_bytes < dies, latencies=latencies)
        windows = [Touched(looks=1, touched_bytes=MIB), Touched(looks=2, touched_bytes=5 * MIB)]
        return replace(found, windows=(*windows, replace(windows[1], touched_bytes=7 * MIB)))

    return Subject(
        application="app", source="invented", work="request", ample_bytes=1024 * MIB,
        floor_bytes=8 * MIB, run=run, target_ms=target_ms,
    )  # fmt: skip


def test_the_border_between_enough_and_too_little_is_halved() -> None:
    runs: list[tuple[int, bool]] = []
    profile = measure_profile(
        subject(runs), ProfileSettings(tolerance=1.05, refinements=3), node="a node"
    )
    # With 1.05, 6 MiB less than needed is still enough: 6 * 100 * 80 us are 48 ms a second.
    assert runs[:2] == [(1024, True), (1024, False)]
    assert [limit for limit, _ in runs[2:6]] == [160, 120, 90, 60]
    assert [limit for limit, _ in runs[6:]] == [140, 150, 145]
    assert profile.working_set_bytes == 145 * MIB
    limits = [run.limit_bytes // MIB for run in profile.runs]
    assert limits == [1024, 160, 150, 145, 140, 120, 90, 60]
    assert [run.fits for run in profile.runs] == [True] * 4 + [False] * 4
    assert profile.least_bytes == 60 * MIB


def test_what_a_page_costs_and_what_it_lives_on_is_found() -> None:
    profile = measure_profile(subject([]), ProfileSettings(), node="a node")
    assert profile.fault_cost_us == pytest.approx(2 * FAULT_US, rel=0.01)
    assert profile.alone_s == pytest.approx(0.01)
    assert (profile.anonymous_bytes, profile.file_bytes) == (50 * MIB, 150 * MIB)
    assert (profile.alone_peak_bytes, profile.threads) == (200 * MIB, 3)
    assert [(one.window_s, one.mean_bytes // MIB) for one in profile.touched] == [(1, 1), (2, 6)]
    assert profile.demand[0].time_s == 0.0
    assert profile.demand[-1].memory_bytes == 200 * MIB
    knee = profile.knee
    assert knee is not None
    most = max(
        (run for run in profile.runs if run.read_back_pages),
        key=lambda run: (run.cpu_s or 0.0) / run.read_back_pages / run.mean_bytes,
    )
    assert knee.memory_bytes == most.mean_bytes


def test_an_application_that_tells_no_work_is_judged_by_its_waiting() -> None:
    profile = measure_profile(subject([], told=False), ProfileSettings(), node="a node")
    assert profile.alone_s is None
    assert [run.fits for run in profile.runs if run.limit_bytes < 120 * MIB] == [False, False]
    assert 120 * MIB <= profile.working_set_bytes < 150 * MIB


def test_an_application_with_requests_is_judged_by_its_target() -> None:
    """The target is 1.5 times the p99 with ample memory, so that 5 ms more are still enough."""
    profile = measure_profile(subject([], latencies=True), ProfileSettings(), node="a node")
    assert profile.target_ms == 15.0
    enough = NEEDED - round(5e5 / FAULT_US / 100) * MIB
    assert enough <= profile.working_set_bytes <= enough + 5 * MIB
    assert "keep its target of 15 ms" in headline(profile)
    told = subject([], latencies=True, target_ms=10.5)
    assert measure_profile(told, ProfileSettings(), node="x").working_set_bytes > enough + 40 * MIB


def test_what_the_kernel_killed_neither_fits_nor_ran() -> None:
    profile = measure_profile(
        subject([], dies=100 * MIB), ProfileSettings(refinements=0), node="a node"
    )
    assert [(run.limit_bytes // MIB, run.killed) for run in profile.runs[-2:]] == [
        (90, True),
        (60, True),
    ]
    assert profile.least_bytes == 120 * MIB


def test_one_good_run_below_a_bad_one_is_not_believed() -> None:
    runs: Sequence[ObservedRun] = [
        *map(observed, (1024 * MIB, 160 * MIB, 100 * MIB)),
        observed(60 * MIB, needed=0),
    ]
    profile = make_profile(
        subject([]), runs, None, tolerance=1.05, node="a node", measured_at="now"
    )
    assert [run.fits for run in profile.runs] == [True, True, False, True]
    assert profile.working_set_bytes == 160 * MIB


def test_an_application_that_needs_no_memory_back_has_no_knee() -> None:
    runs = [observed(1024 * MIB), observed(160 * MIB)]
    profile = make_profile(subject([]), runs, None, tolerance=1.1, node="n", measured_at="now")
    assert (profile.knee, profile.fault_cost_us, profile.touched) == (None, None, ())


def test_what_cannot_run_with_ample_memory_is_not_profiled() -> None:
    with pytest.raises(ProfilingError, match="with 1024 MiB: the kernel killed it"):
        measure_profile(subject([], dies=2048 * MIB), ProfileSettings(), node="a node")


def test_a_profile_can_be_read_back_and_told(tmp_path: Path) -> None:
    profile = measure_profile(subject([]), ProfileSettings(), node="a node")
    save(tmp_path / "app.json", profile)
    assert read_profile(tmp_path / "app.json") == profile
    table = profile_table(profile)
    assert {len(row) for row in table.rows} == {len(table.headers)}
    assert table.rows[0][0] == "1,024 (ample)"
    assert "app needs" in headline(profile)
    assert "costs 160 us" in headline(profile)


@pytest.mark.parametrize("told", [True, False])
def test_the_page_of_a_profile_shows_its_runs(*, told: bool) -> None:
    profile = measure_profile(subject([], told=told), ProfileSettings(), node="a node")
    page = profile_page(profile)
    pictures = [chart.svg for section in page.sections for chart in section.charts]
    assert len(pictures) == 2 + told
    assert all(" MiB: " in picture for picture in pictures[:-1])
    assert "Measured" in render_experiment_page(page)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "is not a profile of an application"),
        ("[1]", "is not a profile of an application"),
        ('{"schema": 1, "workload": "x", "applications": []}', "is not a profile"),
        ('{"kind": "stallward-profile", "schema": 2}', "version 2; this program reads version 1"),
        ('{"kind": "stallward-profile", "schema": 1}', "is not a profile that can be used"),
        ("no JSON", "cannot be read"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(content)
    with pytest.raises(ProfileError, match=message) as caught:
        read_profile(path)
    assert "stallward profile" in caught.value.next_step
