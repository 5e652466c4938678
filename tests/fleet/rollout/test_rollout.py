"""Rollouts to real services over their sockets, from the command line."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rolling_nodes import OLD, NodesClock, RollingNode, ticking
from service_without_loop import WAIT_S

from stallward.evaluation.cli import main

pytestmark = pytest.mark.reaches("actuator/stallward/actuator/service/")

NEW = b"new"
NAMES = ("a", "b", "c", "d")
Nodes = dict[str, RollingNode]
FAST = ("--watch", "1", "--look", "0.05", "--seed", "1", "--json")


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """Nodes that tick as often as the client in this process looks at them."""
    with contextlib.ExitStack() as stack:
        made = {}
        for name in NAMES:
            made[name] = RollingNode(tmp_path / name)
            stack.callback(made[name].stop)
        clock = NodesClock(made.values())
        monkeypatch.setattr("stallward.fleet.rollout.rollout.time", clock)
        yield made


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """A rollout to the nodes, all but its options."""
    policy, file = tmp_path / "new.onnx", tmp_path / "nodes.toml"
    policy.write_bytes(NEW)
    lines = [f'{name} = "{tmp_path / name / "s"}"' for name in NAMES]
    file.write_text("\n".join(["[nodes]", *lines]))
    state = ["--state", str(tmp_path / "state.jsonl")]
    return ["ctl", "rollout", str(policy), "--nodes", str(file), *state, *FAST]


def recall_of(command: list[str]) -> list[str]:
    nodes, state = command.index("--nodes"), command.index("--state")
    return ["ctl", "recall", *command[nodes : nodes + 2], *command[state : state + 2], "--json"]


def run(capsys: pytest.CaptureFixture[str], command: list[str]) -> tuple[int, dict[str, Any]]:
    status = main(command)
    return status, json.loads(capsys.readouterr().out)


def states(answer: dict[str, Any]) -> dict[str, str]:
    return {name: one["state"] for name, one in answer["nodes"].items()}


def decide(nodes: Nodes) -> dict[str, bytes | None]:
    return {name: node.decides for name, node in nodes.items()}


def events(tmp_path: Path) -> list[dict[str, Any]]:
    lines = (tmp_path / "state.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_good_policy_comes_to_all_nodes_wave_by_wave(
    nodes: Nodes, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, answer = run(capsys, [*command, "--waves", "1,50%"])
    assert status == 0
    assert answer["outcome"] == "complete"
    assert decide(nodes) == dict.fromkeys(NAMES, NEW)
    assert answer["counts"]["active"] == 4
    written = events(tmp_path)
    assert [len(one["nodes"]) for one in written if one["event"] == "Switching"] == [1, 1, 2]
    assert [one["wave"] for one in written if one["event"] == "Judged"] == [0, 1, 2]
    assert {one["policy"] for one in written if one["event"] == "Found"} == {
        str(tmp_path / name / "old.onnx") for name in NAMES
    }


def test_a_bad_policy_is_stopped_at_its_first_wave_and_the_old_one_decides_again(
    nodes: Nodes, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for node in nodes.values():
        node.bad = NEW
    status, answer = run(capsys, command)
    assert status == 1
    assert answer["outcome"] == "returned"
    assert "wave 1 is bad: the target was kept at 0% of the looks" in answer["why"]
    assert answer["counts"] | {"back": 1, "waiting": 3} == answer["counts"]
    assert decide(nodes) == dict.fromkeys(NAMES, OLD)


def test_a_bad_second_wave_takes_the_first_back_as_well(
    nodes: Nodes, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*command, "--dry-run"])
    first = capsys.readouterr().out.splitlines()[2].split()[-1]
    for name, node in nodes.items():
        node.bad = None if name == first else NEW
    status, answer = run(capsys, [*command, "--waves", "1,75%"])
    assert (status, answer["outcome"]) == (1, "returned")
    assert answer["counts"] | {"back": 3, "waiting": 1} == answer["counts"]
    assert decide(nodes) == dict.fromkeys(NAMES, OLD)
    assert len([one for one in events(tmp_path) if one["event"] == "Returned"]) == 3


def wait_for(tmp_path: Path, kind: str, count: int) -> None:
    """Wait until so many events of a kind are written."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        with contextlib.suppress(OSError, ValueError):
            if sum(one["event"] == kind for one in events(tmp_path)) >= count:
                return
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.mark.slow
def test_a_client_that_is_killed_is_gone_on_with_by_the_same_command(
    nodes: Nodes, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_main = "import sys; from stallward.evaluation.cli import main; main(sys.argv[1:])"
    program = [sys.executable, "-c", run_main, *command]
    with ticking(nodes.values()), subprocess.Popen(program, stderr=subprocess.DEVNULL) as first:
        wait_for(tmp_path, "Switched", 1)
        assert main(command) == 2  # two at a time are refused
        assert "Another client goes on with the rollout" in capsys.readouterr().err
        first.kill()
    with (tmp_path / "state.jsonl").open("a") as file:
        file.write('{"at":1,"event":"Swit')  # torn by its death
    status, answer = run(capsys, command)
    assert status == 0
    assert decide(nodes) == dict.fromkeys(NAMES, NEW)
    assert answer["counts"]["active"] == 4
    assert sum(one["event"] == "Resumed" for one in events(tmp_path)) == 1


def test_a_node_that_does_not_answer_is_named_and_tried_again_by_the_next_run(
    nodes: Nodes, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    nodes["b"].stop()
    status, answer = run(capsys, [*command, "--waves", "100%", "--skip", "0%"])
    assert (status, answer["outcome"]) == (1, "paused")
    assert states(answer)["b"] == "not reached"
    assert "1 of 4 nodes could not be switched, more than the 0" in answer["why"]
    status, answer = run(capsys, recall_of(command))
    assert (status, answer["outcome"]) == (0, "returned")
    others = {name: node for name, node in nodes.items() if name != "b"}
    assert decide(others) == dict.fromkeys(others, OLD)


def test_with_a_bound_it_is_left_out_and_the_rest_is_completed(
    nodes: Nodes, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    nodes["b"].stop()
    status, answer = run(capsys, [*command, "--waves", "100%", "--skip", "25%"])
    assert (status, answer["outcome"]) == (1, "complete")
    assert answer["counts"] | {"active": 3, "not reached": 1} == answer["counts"]
    assert "does not answer" in answer["nodes"]["b"]["why"]


def test_a_recall_names_the_nodes_that_may_still_run_it(
    nodes: Nodes,
    command: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stallward.fleet.rollout.rollout._AGAIN_S", 0.01)
    assert run(capsys, [*command, "--waves", "100%"])[0] == 0
    nodes["c"].stop()
    status, answer = run(capsys, recall_of(command))
    assert (status, answer["outcome"]) == (1, "returned")
    assert states(answer) == dict.fromkeys(NAMES, "back") | {"c": "may run it"}
    assert decide({name: nodes[name] for name in "abd"}) == dict.fromkeys("abd", OLD)


def test_what_somebody_else_loaded_meanwhile_is_left_alone(
    nodes: Nodes, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, [*command, "--waves", "100%"])[0] == 0
    other = tmp_path / "other.onnx"
    other.write_bytes(b"other")
    assert main(["ctl", "load", str(other), "--socket", str(tmp_path / "a/s")]) == 0
    assert main(["ctl", "mode", "active", "--socket", str(tmp_path / "a/s")]) == 0
    capsys.readouterr()
    _, answer = run(capsys, recall_of(command))
    assert answer["nodes"]["a"] == {"state": "back", "why": "other was loaded there meanwhile"}
    assert nodes["a"].decides == b"other"


def test_a_dry_run_changes_nothing_and_names_who_would_refuse(
    nodes: Nodes, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes["d"].stop()
    plain = [one for one in command if one != "--json"]
    assert main([*plain, "--dry-run"]) == 1
    printed = capsys.readouterr().out
    assert "d cannot be switched now: The daemon at" in printed
    assert "3 of 4 nodes can be switched; 0 may be left out" in printed
    assert not (tmp_path / "state.jsonl").exists()
    assert decide({name: nodes[name] for name in "abc"}) == dict.fromkeys("abc", OLD)


def test_the_table_of_the_fleet_says_what_decides_and_who_has_a_problem(
    nodes: Nodes, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    nodes["c"].bad = OLD
    nodes["d"].stop()
    listing = ["ctl", "fleet", *command[command.index("--nodes") :][:2]]
    deadline_s = time.monotonic() + WAIT_S
    while True:
        for node in nodes.values():
            node.tick()
        assert main([*listing, "--json"]) == 1
        rows = {row["node"]: row for row in json.loads(capsys.readouterr().out)}
        if rows["c"]["problems"]:
            break
        assert time.monotonic() < deadline_s
    digest = hashlib.sha256(OLD).hexdigest()[:12]
    assert rows["a"] == {
        "node": "a",
        "version": rows["a"]["version"],
        "controller": rows["a"]["controller"],
        "policy": f"old {digest} (active)",
        "p95_ms": 10.0,
        "slo_ms": 60.0,
        "paused": 0,
        "slots": 0,
        "problems": [],
    }
    assert rows["c"]["problems"] == ["misses the target"]
    assert "does not answer" in rows["d"]["problems"][0]
    assert main([*listing, "--problems"]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[2:4]] == ["c", "d"]
    assert "4 nodes: 3 answer, 2 of 3 with requests keep the target" in printed
    assert f"policy: 3 old {digest} (active)" in printed


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", None),
        ('{"at":1,"event":"Beg', None),
        ("notes without an end of line", "it is not the beginning of a rollout"),
        ("notes\nof two lines", "line 1 cannot be read: it is no event"),
        ("x\n", "line 1 cannot be read: it is no event"),
        ('{"at":1,"event":"Resumed","by":"me"}\n', "it is not the beginning of a rollout"),
        ('{"at":1,"event":"Began","plan":{},"by":"me"}\n', "line 1 cannot be read: plan"),
    ],
)
def test_a_file_that_is_no_rollout_is_refused(
    command: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: str,
    message: str | None,
) -> None:
    (tmp_path / "state.jsonl").write_text(content)
    assert main(recall_of(command)) == 2
    assert (message or "There is no rollout in") in capsys.readouterr().err
    assert (tmp_path / "state.jsonl").read_text() == (content if message else "")


def test_the_file_of_another_policy_is_refused(
    nodes: Nodes, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del nodes
    assert main([*command, "--skip", "0%"]) == 0
    (tmp_path / "new.onnx").write_bytes(b"another")
    assert main(command) == 2
    assert "holds the rollout of another policy" in capsys.readouterr().err
