"""Experiments are started, watched and stopped over the service's socket."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from experiment_node import BLOCK_S, BURN_IN_S, Node, plan
from service_without_loop import Service

from stallward.actuator.client import Mode
from stallward.actuator.errors import DaemonError, RequestError
from stallward.actuator.experiments.block_tally import BlockResult, Loss
from stallward.actuator.experiments.file import save_state
from stallward.actuator.experiments.plan import Arm, Candidate
from stallward.actuator.experiments.state import Before, ExperimentState, Progress
from stallward.actuator.experiments.wire import EXPERIMENT, Experiment
from stallward.agent.errors import PolicyError
from stallward.agent.latency_histogram import BUCKETS, LatencyHistogram
from stallward.evaluation.cli import main


@pytest.fixture
def node(tmp_path: Path, start: Callable[..., Service]) -> Iterator[Node]:
    made = Node(start(experiments=tmp_path / "experiments"))
    yield made
    made.end()


@pytest.mark.parametrize("mode", [Mode.SHADOW, Mode.ADVICE])
def test_an_experiment_runs_its_blocks_and_puts_back_what_was_in_force(
    node: Node, tmp_path: Path, mode: Mode
) -> None:
    old = tmp_path / "old.onnx"
    old.write_bytes(b"old")
    node.client.load(str(old))
    node.client.set_mode(mode)
    assert node.client.experiments.get() is None
    assert not node.client.status().refused
    wanted = plan(tmp_path)
    begun = node.client.experiments.start(wanted)
    assert begun.progress is Progress.RUNNING
    assert begun.plan.treatment.sha256
    ended = node.until(
        lambda seen: seen.progress is not Progress.RUNNING, lambda arm: 30.0 - 10.0 * arm
    )
    assert ended.progress is Progress.COMPLETE
    assert [block.arm for block in ended.blocks] == [wanted.arm_of(k) for k in range(6)]
    for block in ended.blocks:
        assert block.loss is Loss.NONE
        assert block.seconds == BLOCK_S
        assert block.p95_ms == pytest.approx(30.0 - 10.0 * block.arm)
        assert block.attainment == 1.0
        assert block.background_cores == pytest.approx(0.5)
        assert block.latencies == LatencyHistogram(
            buckets=(300, 500), counts=(97 * BLOCK_S, 3 * BLOCK_S)
        )
    node.wait(lambda: node.client.status().mode is mode)
    policy = node.client.status().policy
    assert policy is not None
    assert policy.path == str(old)


def test_an_experiment_says_in_which_unit_work_was_counted(node: Node, tmp_path: Path) -> None:
    node.loop.unit = "steps"
    node.client.experiments.start(plan(tmp_path, pairs=1))
    ended = node.until(lambda seen: seen.progress is not Progress.RUNNING, lambda _: 20.0)
    for block in ended.blocks:
        assert block.work_unit == "steps"
        assert block.background_units_per_s == pytest.approx(3.0)
        assert block.background_cores == pytest.approx(0.5), "it is kept, too"


def test_the_requests_of_all_of_several_applications_are_those_of_a_block(
    node: Node, tmp_path: Path
) -> None:
    node.loop.applications = ("db", "web")
    node.client.experiments.start(plan(tmp_path, pairs=1))
    ended = node.until(lambda seen: seen.progress is not Progress.RUNNING, lambda _: 20.0)
    for block in ended.blocks:
        assert block.latencies == LatencyHistogram(
            buckets=(300, 500), counts=(2 * 97 * BLOCK_S, 2 * 3 * BLOCK_S)
        )


def test_the_status_says_where_it_is_and_other_changes_are_refused_meanwhile(
    node: Node, tmp_path: Path
) -> None:
    node.client.experiments.start(plan(tmp_path))
    node.until(lambda seen: len(seen.blocks) == 1, lambda _: 20.0)
    node.until(lambda seen: seen.phase is not None and seen.phase.measured, lambda _: 20.0)
    phase = node.client.status().experiment
    assert phase is not None
    assert (phase.block, phase.blocks, phase.measured) == (1, 6, True)
    assert 0.0 < phase.left_s <= BLOCK_S
    calls: tuple[Callable[[], object], ...] = (
        lambda: node.client.set_mode(Mode.OFF),
        lambda: node.client.load(str(tmp_path / "new.onnx")),
        node.client.roll_back,
        lambda: node.client.experiments.start(plan(tmp_path)),
    )
    for call in calls:
        with pytest.raises(RequestError, match="An experiment runs"):
            call()
    stopped = node.client.experiments.stop()
    assert stopped.progress is Progress.STOPPED
    assert stopped.phase is None
    assert node.client.status().experiment is None
    node.client.set_mode(Mode.OFF)
    with pytest.raises(RequestError, match="No experiment runs"):
        node.client.experiments.stop()


def test_a_treatment_that_misses_the_target_ends_it_within_its_blocks(
    node: Node, tmp_path: Path
) -> None:
    wanted = replace(plan(tmp_path, pairs=50), block_s=200.0)
    node.client.experiments.start(wanted)  # the target is 60 ms
    ended = node.until(
        lambda seen: seen.progress is not Progress.RUNNING, lambda arm: 500.0 if arm else 20.0
    )
    assert ended.progress is Progress.GUARDRAIL
    assert len(ended.blocks) == 2
    assert ended.blocks[-1].seconds < 100, "it did not wait for the end of the block"
    node.wait(lambda: node.client.status().mode is Mode.OFF)


@pytest.mark.parametrize(("queues", "pairs"), [(True, 4), (False, 7)])
def test_a_treatment_under_which_nothing_is_answered_ends_it(
    node: Node, tmp_path: Path, *, queues: bool, pairs: int
) -> None:
    """Clients that wait show it with the next answer; those that give up, once it is no chance."""
    node.client.experiments.start(plan(tmp_path, pairs=50))
    ended = node.until(
        lambda seen: seen.progress is not Progress.RUNNING,
        lambda arm: None if arm else 20.0,
        queues=queues,
    )
    assert ended.progress is Progress.GUARDRAIL
    assert len(ended.blocks) <= 2 * pairs
    missed = [one for one in ended.blocks if one.arm is Arm.TREATMENT and one.loss is Loss.NONE]
    assert bool(missed) is queues
    assert {one.attainment for one in missed} <= {0.0}
    node.wait(lambda: node.client.status().mode is Mode.OFF)


def test_an_application_that_is_idle_for_some_blocks_ends_nothing(
    node: Node, tmp_path: Path
) -> None:
    node.client.experiments.start(plan(tmp_path, pairs=4))
    ended = node.until(
        lambda seen: seen.progress is not Progress.RUNNING,
        lambda _: None if 30 <= node.second < 130 else 20.0,
    )
    assert ended.progress is Progress.COMPLETE
    losses = [one.loss for one in ended.blocks]
    assert Loss.NO_REQUESTS in losses
    assert {one.attainment for one in ended.blocks if one.loss is Loss.NONE} == {1.0}


def test_an_experiment_takes_over_no_block_of_the_one_before(node: Node, tmp_path: Path) -> None:
    node.client.experiments.start(plan(tmp_path))
    node.until(lambda seen: len(seen.blocks) == 1, lambda _: 20.0 if node.second < 24 else None)
    node.client.experiments.stop()
    node.client.experiments.start(plan(tmp_path))
    node.until(_ticked(), lambda _: 20.0)
    assert node.experiment().blocks == ()


@pytest.mark.parametrize(
    ("tick", "loss"), [({"leased": True}, Loss.LEASE), ({"silent": True}, Loss.LOOP_SILENT)]
)
def test_a_block_that_was_disturbed_is_lost_and_the_next_one_counts(
    node: Node, tmp_path: Path, tick: dict[str, bool], loss: Loss
) -> None:
    node.client.experiments.start(plan(tmp_path))
    node.until(lambda seen: seen.phase is not None and seen.phase.measured, lambda _: 20.0)
    if "silent" in tick:
        node.until(_ticked(), lambda _: 20.0)
        node.second += 100
    node.until(_ticked(), lambda _: 20.0, leased=tick.get("leased", False))
    seen = node.until(lambda seen: len(seen.blocks) == 2, lambda _: 20.0)
    assert [block.loss for block in seen.blocks] == [loss, Loss.NONE]


def _ticked() -> Callable[[Experiment], bool]:
    """Whether a tick was sent since it was made."""
    asked = iter([False])
    return lambda _: next(asked, True)


def test_it_goes_on_after_a_restart_with_the_next_block(
    tmp_path: Path, start: Callable[..., Service]
) -> None:
    service = start(experiments=tmp_path / "experiments")
    node = Node(service)
    node.client.experiments.start(plan(tmp_path))
    node.until(lambda seen: len(seen.blocks) == 2, lambda _: 20.0)
    node.until(lambda seen: seen.phase is not None and seen.phase.measured, lambda _: 20.0)
    node.end()
    service.kill()
    (tmp_path / "again").mkdir()
    later = Service(tmp_path / "again", experiments=tmp_path / "experiments")
    node = Node(later)
    try:
        ended = node.until(lambda seen: seen.progress is not Progress.RUNNING, lambda _: 20.0)
        assert ended.progress is Progress.COMPLETE
        losses = [block.loss for block in ended.blocks]
        assert losses == [Loss.NONE] * 2 + [Loss.SERVICE_RESTARTED] + [Loss.NONE] * 3
        kept = [None if block.latencies is None else 1 for block in ended.blocks]
        assert kept == [1, 1, None, 1, 1, 1]
    finally:
        node.end()
        later.close()


def test_what_cannot_be_started_is_refused_and_changes_nothing(node: Node, tmp_path: Path) -> None:
    old = tmp_path / "old.onnx"
    old.write_bytes(b"old")
    node.client.load(str(old))
    node.client.set_mode(Mode.ACTIVE)
    wanted = plan(tmp_path)
    with pytest.raises(PolicyError, match="There is no policy /nowhere"):
        node.client.experiments.start(replace(wanted, treatment=Candidate(policy="/nowhere.onnx")))
    with pytest.raises(RequestError, match="Both arms are the same"):
        node.client.experiments.start(replace(wanted, treatment=Candidate()))
    (tmp_path / "experiments").write_text("no folder")
    with pytest.raises(DaemonError, match="cannot be kept"):
        node.client.experiments.start(wanted)
    assert node.client.experiments.get() is None
    status = node.client.status()
    assert status.mode is Mode.ACTIVE
    assert status.policy is not None
    assert status.policy.path == str(old)


def test_without_a_folder_there_are_no_experiments(
    tmp_path: Path, start: Callable[..., Service]
) -> None:
    node = Node(start())
    for call in (node.client.experiments.get, node.client.experiments.stop):
        with pytest.raises(RequestError, match="Set dir under"):
            call()
    node.end()


@pytest.mark.slow
def test_a_long_experiment_with_all_its_latencies_is_shown(
    tmp_path: Path, start: Callable[..., Service]
) -> None:
    """It is longer than the 4 MiB that gRPC takes by default."""
    wanted = plan(tmp_path, pairs=150)
    full = LatencyHistogram(buckets=tuple(range(BUCKETS)), counts=(1 << 60,) * BUCKETS)
    state = ExperimentState(
        plan=wanted,
        before=Before(),
        began_s=1.5e9,
        blocks=tuple(
            BlockResult(pair=k // 2, arm=wanted.arm_of(k), began_s=1.5e9, latencies=full)
            for k in range(wanted.blocks)
        ),
        progress=Progress.COMPLETE,
        ended_s=1.6e9,
    )
    shown = Experiment(
        plan=wanted,
        progress=state.progress,
        began_s=state.began_s,
        ended_s=state.ended_s,
        blocks=state.blocks,
        phase=None,
    )
    assert EXPERIMENT.to_wire(shown).ByteSize() > 4 << 20
    save_state(tmp_path / "experiments", state)
    node = Node(start(experiments=tmp_path / "experiments"))
    try:
        node.wait(lambda: node.client.experiments.get() is not None)  # it is read beside serving
        assert node.experiment().blocks == state.blocks
    finally:
        node.end()


@pytest.mark.slow
def test_the_commands_start_follow_and_stop_it(
    node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = plan(tmp_path).treatment.policy
    where = ("--socket", str(node.client.daemon))
    assert main(["ab", "status", *where]) == 2
    assert "There was no experiment on this node" in capsys.readouterr().err
    blocks = ("--block-seconds", str(BLOCK_S), "--burn-in-seconds", str(BURN_IN_S))
    begun = ("ab", "start", "--treatment", policy, "--pairs", "2", *blocks)
    assert main([*begun, "--measure", "p50", *where]) == 2
    assert "'p50' is not a measure" in capsys.readouterr().err
    assert main([*begun, *where]) == 0
    assert "started: 2 pairs, at most 1.7 minutes, seed" in capsys.readouterr().out
    assert main(["ab", "status", *where]) == 0
    assert "block 1 of 4" in capsys.readouterr().out
    assert main(["ctl", "status", *where]) == 0
    assert "block 1 of 4" in capsys.readouterr().out
    node.until(lambda seen: len(seen.blocks) == 2, lambda _: 20.0)
    assert main(["ab", "stop", *where]) == 0
    assert "stopped after 2 of 4 blocks" in capsys.readouterr().out
    assert main(["ab", "report", *where]) == 0
    said = capsys.readouterr().out
    assert "It was stopped." in said
    assert "baseline: 1 blocks, target kept in 100.0 %" in said
    assert main(["ab", "report", "--json", *where]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["experiment"]["progress"] == "stopped"
    assert set(answer["report"]["ratios"]) == {"p95", "worst", "work", "block-p95", "block-p99"}
    assert answer["report"]["ratios"]["block-p99"]["pairs"] == 1
    assert answer["report"]["blocks"][0]["latencies"]["requests"] == 100 * BLOCK_S
