"""The experiments of the latd thesis in a real sandbox, with a real daemon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.files import read_text
from stallward.papers.experiments.latd.result import LatdRun
from stallward.papers.experiments.latd.session import (
    DetectorSession,
    open_detector_session,
)
from stallward.papers.experiments.latd.steps import SCENARIOS, Setting
from stallward.papers.experiments.latd.workload import MIB, SHORT, USUAL

pytestmark = [
    pytest.mark.live,
    pytest.mark.reaches(
        "actuator/stallward/actuator/",
        "env/stallward/env/workloads/",
        "env/stallward/env/scenario/",
    ),
]
SWAPPINESS = 37


@pytest.fixture(scope="module")
def session() -> Iterator[DetectorSession]:
    with open_detector_session() as opened:
        yield replace(opened, measured_s=8.0)


def swappiness_files(session: DetectorSession) -> list[Path]:
    """The files of the node, and of the groups where they have one."""
    sandbox = session.live.sandbox
    groups: list[Cgroup] = [sandbox.zone, sandbox.protected, *sandbox.slots]
    own = [one.memory_dir / "memory.swappiness" for one in groups if one.memory_dir is not None]
    node = sandbox.paths.proc / "sys" / "vm" / "swappiness"
    return [node, *(path for path in own if path.exists())]


def run_watched(session: DetectorSession, setting: Setting) -> tuple[LatdRun, set[str]]:
    """Make a run; also what all files of the swappiness held together at some time in it."""
    files, seen, over = swappiness_files(session), set[str](), Event()

    def watch() -> None:
        while not over.wait(0.05):
            held = {(read_text(path) or "").strip() for path in files}
            if len(held) == 1:
                seen.update(held)

    watcher = Thread(target=watch)
    watcher.start()
    try:
        run = session.run(setting, 1)
    finally:
        over.set()
        watcher.join()
    return run, seen


def test_a_hog_takes_the_memory_and_swappiness_is_what_it_was_told(
    session: DetectorSession,
) -> None:
    before = {path: read_text(path) for path in swappiness_files(session)}
    setting = Setting(hog="anon-once", controller=f"static:swappiness={SWAPPINESS}")
    run, seen = run_watched(session, setting)
    assert str(SWAPPINESS) in seen
    assert {path: read_text(path) for path in before} == before, "nothing is left behind"
    assert run.latency_ms
    assert all(latency > 0 for latency in run.latency_ms)
    most = max(run.memory.hog_bytes)
    size_mib = USUAL.hog_mib("anon-once", SHORT)
    assert 0.5 * size_mib < most / MIB < 1.1 * size_mib
    assert max(run.memory.detector_bytes) > 150 * MIB, "its weights are mapped"
    assert run.memory.images[-1] > run.memory.images[0]
    if not run.not_counted:
        assert run.detector_lookups is not None
        assert run.detector_lookups.total > 0


def test_latd_cgroup_holds_the_hog_under_its_limit(session: DetectorSession) -> None:
    run = session.run(SCENARIOS["latd-cgroup"], 1)
    assert run.work_mib_per_s
    # Mapped file pages are charged to the group, so its resident set is under the limit, too.
    assert max(run.memory.hog_bytes) <= 1.05 * 10 / 16 * 640 * MIB


def test_the_detector_alone_has_no_hog(session: DetectorSession) -> None:
    run = session.run(SCENARIOS["isolated"], 1)
    assert max(run.memory.hog_bytes) == 0
    assert run.work_mib_per_s is None
