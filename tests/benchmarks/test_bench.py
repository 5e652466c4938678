"""Parts of the benchmark: onset detection, the reflex policy, readings of CPU and memory."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from stallward.actuator.kernel.paths import Paths
from stallward.agent.controller import NodeContext
from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.errors import PolicyError
from stallward.agent.observation.encoder import OBSERVATION_NAMES, OBSERVATION_SIZE
from stallward.agent.sample import GroupSample, NodeSample, Sample, SlotState
from stallward.benchmarks.bench import figure_rows
from stallward.benchmarks.onset import OnsetDetector, write_reflex_policy
from stallward.benchmarks.overhead import (
    MEANINGS,
    DaemonWatch,
    _cpu_s,
    _memory_mib,
    bench_node,
)
from stallward.env.recording.node_facts import node_info


def _feed(detector: OnsetDetector, readings: list[tuple[float, int, str]]) -> None:
    for now_s, stalled_us, state in readings:
        detector.see(now_s, stalled_us, running=state == "run", frozen=state == "frozen")


def test_the_delay_runs_from_the_first_stall_after_calm_to_everything_frozen() -> None:
    detector = OnsetDetector()
    calm = [(0.01 * i, 0, "run") for i in range(30)]
    _feed(detector, [*calm, (0.30, 1500, "run"), (0.35, 9000, "partly"), (0.42, 9500, "frozen")])
    assert detector.delays_ms == [pytest.approx(120.0)]


def test_a_stall_without_calm_before_it_is_no_onset() -> None:
    detector = OnsetDetector()
    busy = [(0.01 * i, 2000 * i, "run") for i in range(60)]
    _feed(detector, [*busy, (0.61, 120_000, "frozen")])
    assert detector.delays_ms == []


def test_a_trickle_of_stalls_is_no_onset() -> None:
    detector = OnsetDetector()
    trickle = [(0.01 * i, 10 * i, "run") for i in range(300)]
    _feed(detector, [*trickle, (3.0, 3000, "frozen")])
    assert detector.delays_ms == []


def test_an_onset_without_a_pause_counts_with_the_time_waited() -> None:
    detector = OnsetDetector()
    calm = [(0.01 * i, 0, "run") for i in range(30)]
    _feed(detector, [*calm, (0.3, 2000, "run"), (5.31, 9000, "run")])
    assert detector.delays_ms == [pytest.approx(5010.0)]


def test_one_episode_counts_once() -> None:
    detector = OnsetDetector()
    calm = [(0.01 * i, 0, "run") for i in range(30)]
    _feed(detector, [*calm, (0.3, 2000, "run"), (0.4, 3000, "frozen"), (0.5, 3000, "frozen")])
    assert len(detector.delays_ms) == 1


@pytest.mark.parametrize(("share", "paused"), [(0.0, False), (0.3, True)])
def test_the_reflex_policy_pauses_exactly_while_the_application_stalls(
    tmp_path: Path, share: float, paused: bool
) -> None:
    path = tmp_path / "reflex.onnx"
    write_reflex_policy(path)
    controller = OnnxController(path)
    controller.reset(NodeContext(zone_limit_bytes=1 << 30, slot_names=("a", "b")))
    group = GroupSample(name="g")
    sample = Sample(
        sequence=0,
        time_s=0.0,
        node=NodeSample(),
        zone=group,
        protected=group,
        slots=(group, group),
        slot_states=(SlotState(reference_bytes=1 << 28),) * 2,
    )
    observation = np.zeros(OBSERVATION_SIZE, dtype=np.float32)
    observation[OBSERVATION_NAMES.index("protected_psi_memory_some_share")] = share
    desired = controller.decide(sample, observation).desired
    assert [slot.paused for slot in desired.slots] == [paused, paused]
    assert all(slot.limit_bytes is None for slot in desired.slots)


def test_cpu_and_memory_of_a_process() -> None:
    main_s, others_s = _cpu_s(os.getpid())
    assert main_s > 0.0
    assert main_s + others_s == pytest.approx(sum(os.times()[:2]), abs=0.5)
    rss, pss = _memory_mib(os.getpid())
    assert 5.0 < pss <= rss


def test_cpu_shares_of_the_loop_and_of_its_limit_writers_leave_out_the_burn_in() -> None:
    watch = DaemonWatch(loop_cpu_s=[(0.0, 5.0, 0.0), (4.0, 6.0, 1.0), (14.0, 6.25, 3.0)])
    assert list(watch.loop_shares()) == pytest.approx([0.225, 0.2])
    assert DaemonWatch().loop_shares() == (None, None)


def test_nothing_is_measured_in_place_of_a_policy_that_cannot_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> None:
        raise PolicyError("It cannot be run here.")

    def opened(*_: object) -> None:
        pytest.fail("A session was opened.")

    monkeypatch.setattr("stallward.benchmarks.overhead.find_policy_of", refused)
    monkeypatch.setattr("stallward.benchmarks.overhead.open_session", opened)
    with pytest.raises(PolicyError, match="cannot be run here"):
        bench_node()


def test_rows_explain_every_key_and_show_absence() -> None:
    rows = figure_rows(dict.fromkeys(MEANINGS), MEANINGS)
    assert [row[0] for row in rows] == list(MEANINGS)
    assert {row[1] for row in rows} == {"-"}
    assert figure_rows({"loop_cpu_share_calm": 0.021}, MEANINGS)[0][1] == "2.10 %"


def test_the_disk_of_a_folder_is_the_one_it_lies_on() -> None:
    assert node_info(Path("/dev/shm/not-there-yet")).disk.endswith("(tmpfs)")
    assert node_info(Path("/proc/self")).disk.endswith("(proc)")


def test_the_node_says_which_processor_it_has(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(
        "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n"
        "stepping\t: 1\nflags\t\t: fpu vme\n\nprocessor\t: 1\nmodel name\t: another\n"
    )
    paths = Paths(proc=tmp_path / "proc")
    assert node_info(tmp_path, paths).cpu == "AMD EPYC 26 2 1"
    (tmp_path / "proc" / "cpuinfo").unlink()
    assert node_info(tmp_path, paths).cpu == ""
