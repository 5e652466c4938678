"""One experiment on three real services: it runs on all of them or on none, and none is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from experiment_node import Node, plan

from stallward.actuator.client import Mode
from stallward.actuator.errors import RequestError
from stallward.actuator.experiments.plan import Arm, Candidate, ExperimentPlan
from stallward.actuator.experiments.state import Progress
from stallward.actuator.experiments.wire import EXPERIMENT_PLAN, Experiment
from stallward.evaluation.cli import main
from stallward.fleet import Fleet, experiments
from stallward.fleet.errors import FleetError
from stallward.fleet.experiment_plan import FleetPlan

Nodes = dict[str, Node]
Make = Callable[..., Nodes]
SEED = 77


def wanted(tmp_path: Path, **changes: object) -> FleetPlan:
    base = replace(plan(tmp_path), **changes)  # type: ignore[arg-type]
    return FleetPlan(plan=base, treatments=(base.treatment,), seed=SEED)


def ended(seen: Experiment) -> bool:
    return seen.progress is not Progress.RUNNING


def test_it_runs_on_each_node_with_draws_of_its_own_and_needs_no_client(
    nodes: Make, tmp_path: Path
) -> None:
    made = nodes()
    with Fleet({name: node.client.daemon for name, node in made.items()}) as fleet:
        started = experiments.start(fleet, wanted(tmp_path, pairs=1))
    assert list(started.experiments) == ["a", "b", "c"]
    seeds = {one.plan.seed for one in started.experiments.values()}
    assert len(seeds) == 3
    for node in made.values():  # the client that started it is gone
        seen = node.until(ended, lambda _: 20.0)
        assert seen.progress is Progress.COMPLETE
        assert seen.plan.fleet_seed == SEED


def test_if_one_refuses_none_runs_it_and_it_is_named(
    nodes: Make, fleet: Fleet, tmp_path: Path
) -> None:
    made = nodes(without_folder=("b",))
    with pytest.raises(FleetError, match=r"1 of 3 nodes .* b: No folder for experiments"):
        experiments.start(fleet, wanted(tmp_path))
    assert made["a"].client.experiments.get() is None
    assert made["c"].client.experiments.get() is None
    started = experiments.start(fleet, wanted(tmp_path), partly=True)
    assert list(started.experiments) == ["a", "c"]
    assert isinstance(started.refused["b"], RequestError)
    assert not started.left


def test_those_that_began_are_stopped_again_if_one_cannot_begin(
    nodes: Make, fleet: Fleet, tmp_path: Path
) -> None:
    """Only while it starts does it show that the disk of c cannot keep an experiment."""
    made = nodes()
    (tmp_path / "c/experiments").write_text("no folder")
    old = tmp_path / "old.onnx"
    old.write_bytes(b"old")
    made["a"].client.load(str(old))
    made["a"].client.set_mode(Mode.ACTIVE)
    with pytest.raises(FleetError, match=r"c: .*cannot be kept"):
        experiments.start(fleet, wanted(tmp_path))
    for name in ("a", "b"):
        seen = made[name].experiment()
        assert seen.progress is Progress.STOPPED
        assert seen.blocks == ()
    status = made["a"].client.status()
    assert status.mode is Mode.ACTIVE
    assert status.policy is not None
    assert status.policy.path == str(old)


def test_if_it_is_interrupted_while_it_starts_none_is_left_running(
    nodes: Make, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, calls, ask = nodes(), iter(range(9)), Fleet.ask

    def interrupted(self: Fleet, call: Any, names: Any = None) -> Any:
        answers = ask(self, call, names)
        if next(calls) == 1:  # 0 asks whether they can
            assert len(answers.given) == 3
            raise KeyboardInterrupt
        return answers

    monkeypatch.setattr(Fleet, "ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        experiments.start(fleet, wanted(tmp_path))
    assert {node.experiment().progress for node in made.values()} == {Progress.STOPPED}


def test_a_daemon_that_does_not_know_of_many_nodes_refuses(
    nodes: Make, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = nodes()

    def older(wanted: ExperimentPlan) -> object:
        return EXPERIMENT_PLAN.to_wire(replace(wanted, fleet_seed=None))

    monkeypatch.setattr(
        "stallward.actuator.client.client.EXPERIMENT_PLAN", SimpleNamespace(to_wire=older)
    )
    with pytest.raises(FleetError, match="a: Its daemon does not know"):
        experiments.start(fleet, wanted(tmp_path))
    assert {node.experiment().progress for node in made.values()} == {Progress.STOPPED}


def test_a_running_experiment_of_a_node_is_neither_disturbed_nor_stopped(
    nodes: Make, fleet: Fleet, tmp_path: Path
) -> None:
    made = nodes()
    made["b"].client.experiments.start(plan(tmp_path))
    with pytest.raises(FleetError, match="b: An experiment runs already"):
        experiments.start(fleet, wanted(tmp_path))
    assert experiments.stop(fleet).given == {"a": None, "b": None, "c": None}
    assert made["b"].experiment().progress is Progress.RUNNING


def test_treatments_are_dealt_out_and_one_name_must_mean_one_policy(
    nodes: Make, fleet: Fleet, tmp_path: Path
) -> None:
    nodes()
    base = wanted(tmp_path)
    treatments = (*base.treatments, Candidate(policy="controller:pi"))
    started = experiments.start(fleet, replace(base, treatments=treatments))
    policies = sorted(one.plan.treatment.policy for one in started.experiments.values())
    assert len(set(policies)) == 2
    stopped = experiments.stop(fleet)
    assert {one and one.progress for one in stopped.given.values()} == {Progress.STOPPED}


@pytest.mark.slow
def test_one_dies_one_breaks_its_guardrail_and_both_are_named(
    nodes: Make, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = nodes()
    policy = plan(tmp_path).treatment.policy
    started = ["ab", "start", "--nodes", file, "--treatment", policy, "--pairs", "2"]
    blocks = ["--block-seconds", "100", "--burn-in-seconds", "5", "--seed", "5"]
    assert main([*started, *blocks]) == 0
    said = capsys.readouterr().out
    assert "started on 3 nodes: 2 pairs on each" in said
    assert "seed 5" in said
    bad = made["a"].until(ended, lambda arm: 500.0 if arm is Arm.TREATMENT else 20.0)
    assert bad.progress is Progress.GUARDRAIL
    made["b"].until(lambda seen: len(seen.blocks) == 2, lambda arm: 20.0 + 5.0 * arm)
    made["c"].service.kill()

    assert main(["ab", "status", "--nodes", file]) == 0
    rows = capsys.readouterr().out
    assert "guardrail" in rows
    assert "2/4" in rows
    assert "c is left out: The daemon at" in rows
    assert "2 nodes: 1 running, 1 guardrail; seed 5" in rows

    assert main(["ab", "report", "--nodes", file]) == 0
    said = capsys.readouterr().out
    assert "c is left out: The daemon at" in said
    assert (
        "a stopped because the treatment certainly keeps the target less often there, or" in said
    )
    assert "It still runs on 1 nodes." in said
    assert main(["ab", "report", "--nodes", file, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer["experiments"]) == {"a", "b"}
    assert answer["report"]["treatments"][0]["ratios"]["p95"]["nodes"] == 2

    assert main(["ab", "stop", "--nodes", file]) == 1
    said, why = capsys.readouterr()
    assert "stopped on 1 nodes" in said
    assert "c may still run it: The daemon at" in why
    assert made["b"].experiment().progress is Progress.STOPPED


def test_what_one_node_cannot_do_is_said(
    nodes: Make, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes()
    assert main(["ab", "report", "--nodes", file]) == 2
    assert "No node takes part" in capsys.readouterr().err
    assert main(["ab", "start", "--treatment", "x", "--treatment", "y"]) == 2
    assert "One node compares one treatment" in capsys.readouterr().err
