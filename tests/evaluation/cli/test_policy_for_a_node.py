"""The commands of docs/how-to/policy-for-a-node.md, as they stand there, on a recorded day."""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from node_day import NodeDay, make_day
from policy_loop import Loop
from service_without_loop import WAIT_S, Service

from stallward.actuator.client import ActuatorClient, Mode
from stallward.actuator.config.tables import PolicyConfig
from stallward.actuator.experiments.state import Progress
from stallward.env.recording.run_info import load_run
from stallward.env.testing import small_twin
from stallward.evaluation.cli import main
from stallward.models.registry import find_policy
from stallward.training.ppo import args as ppo

pytestmark = pytest.mark.reaches(
    "models/", "docs/how-to/policy-for-a-node.md", "actuator/stallward/actuator/service/"
)

PAGE = Path(__file__).parents[3] / "docs/how-to/policy-for-a-node.md"
QUICK = {
    "fit": ["--generations", "2"],
    "fidelity": ["--arm", "none"],
    "train": ["--decisions", "2048", "--seeds", "1", "--composed", "0"],
    "ope": ["--least-seconds", "60"],
    "ab plan": ["--block-seconds", "5", "--burn-in-seconds", "2"],
    "ab start": ["--pairs", "1", "--block-seconds", "10", "--burn-in-seconds", "0"],
}
"""What makes a command quick; the last of an option given twice counts."""


def commands(section: str) -> list[list[str]]:
    """The arguments of each ``stallward`` in the shell blocks of a section of the page."""
    text = PAGE.read_text().partition(f"\n## {section}")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    assert lines, section
    return [shlex.split(line)[1:] for line in lines]


def quickly(command: list[str]) -> list[str]:
    for name, options in QUICK.items():
        if command[: len(name.split())] == name.split():
            return [*command, *options]
    return command


def run(command: list[str], day: NodeDay) -> int:
    """Run one command with the files of the day in place of the node's."""
    places = {
        "/var/lib/stallward/recording": str(day.record),
        "/etc/stallward/stallward.toml": str(day.config),
        "/var/log/detector/requests.log": str(day.log),
    }
    return main([places.get(part, part) for part in quickly(command)])


@pytest.fixture
def brief_training(monkeypatch: pytest.MonkeyPatch) -> None:
    full = ppo.Args

    def brief(**given: Any) -> ppo.Args:
        made = full(**given)
        return replace(
            made,
            n_envs=64,
            n_steps=16,
            batch_size=256,
            evaluation_episodes=2,
            settings=replace(made.settings, episode_s=30.0),
        )

    monkeypatch.setattr(ppo, "Args", brief)


@pytest.mark.slow
@pytest.mark.usefixtures("brief_training")
def test_recordings_a_twin_and_a_policy_come_of_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    controllers = ("none", "partition", "excite:table=set-points")
    day = make_day(tmp_path, small_twin(), [(name, 62.0) for name in controllers])
    for command in [*commands("2."), *commands("3.")]:
        # The off-policy check may refuse a policy that has hardly been trained.
        assert run(command, day) in ({0, 1} if command[0] == "ope" else {0}), command
    printed = capsys.readouterr()
    runs = [load_run(file.parent) for file in sorted(tmp_path.glob("recordings/*/*/run.json"))]
    assert [one.arm for one in runs] == list(controllers)
    assert {one.slot_units for one in runs} == {("steps",)}
    assert (tmp_path / "build/my-node.md").is_file(), "the card"
    assert (tmp_path / "build/fidelity/fidelity.html").is_file()
    assert "onnx:path=build/my-node.onnx" in printed.out, "the off-policy check"
    assert re.search(r"^next: stallward export build/", printed.out, re.MULTILINE)
    assert printed.out.count("Twins on which it is better than") == 2, "of train and of export"
    assert "pairs" in printed.out


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    service = Service(
        tmp_path, policy_store=tmp_path / "policies", experiments=tmp_path / "experiments"
    )
    monkeypatch.setenv("STALLWARD_SOCKET", str(service.socket))
    yield service
    service.close()


def let_experiment_end(loop: Loop, client: ActuatorClient, seconds: Iterator[int]) -> None:
    """Let seconds go by on the node until its experiment is over."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        seen = client.experiments.get()
        if seen is None or seen.progress is not Progress.RUNNING:
            return
        assert time.monotonic() < deadline_s, seen
        loop.send_second(next(seconds), p95_ms=20.0)
        client.status()  # the service has taken the tick, and asked for the next arm


@pytest.mark.slow
def test_a_policy_is_tried_on_a_node_and_activated(
    node: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()
    shutil.copy(find_policy("default"), tmp_path / "build/my-node.onnx")
    day = make_day(tmp_path, small_twin(), [("none", 2.0)], shadow="my-node")
    loop, client, seconds = Loop(node), ActuatorClient(node.socket), count(1)
    client.wait_ready(WAIT_S)
    loop.unit, loop.places = "steps", PolicyConfig(store=tmp_path / "policies")
    try:
        for command in [*commands("1."), *commands("4.")]:
            assert run(command, day) == 0, command
            if command[:2] == ["ab", "start"]:
                let_experiment_end(loop, client, seconds)
        status = client.status()
    finally:
        client.close()
        loop.end()
    assert status.mode is Mode.ACTIVE
    assert status.policy is not None
    assert "work of the background, in steps" in capsys.readouterr().out
