"""Advice through the service: streamed, kept, bounded, and written to the journal."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from policy_loop import Loop
from service_without_loop import WAIT_S, Service
from typer.testing import CliRunner

from stallward.actuator.cli.ctl import ctl
from stallward.actuator.client import ActuatorClient, Advised
from stallward.actuator.ipc.channels import frame_tick
from stallward.actuator.service.advice import ADVICE_ID, MOST_KEPT, AdviceEntry, AdviceLog
from stallward.actuator.service.notices import Journald
from stallward.actuator.service.watchers import WATCH_QUEUE
from stallward.agent.errors import UsageError
from stallward.proto.v1 import stallward_pb2 as pb


def tick(number: int, *, paused: bool) -> pb.TickRecord:
    """A tick of a policy in advice mode, a minute after the one before."""
    record = pb.TickRecord(
        sequence=number,
        time_s=60.0 * number,
        wall_time_s=1e9 + 60.0 * number,
        mode=pb.MODE_ADVICE,
        decision=pb.Decision(controller="partition", reason="fits"),
    )
    record.sample.time_s = record.time_s
    record.sample.slots.add(name="zone/hog")
    record.sample.slot_states.add()
    record.shadow.controller = "ppo"
    record.shadow.reason = "policy"
    record.shadow.desired.slots.add(paused=paused)
    return record


class Node:
    """A service whose loop is this test."""

    def __init__(self, service: Service) -> None:
        self.socket = service.socket
        self.loop = Loop(service)
        self.loop.status.mode = pb.MODE_ADVICE
        self.loop.status.slots.append("training")
        self.loop.send_status()
        self.client = ActuatorClient(service.socket)
        self.client.wait_ready(WAIT_S)

    def tick(self, number: int, *, paused: bool) -> None:
        """Have the service take a tick."""
        data = tick(number, paused=paused).SerializeToString()
        self.loop.connection.send(frame_tick(data))
        while self.client.status().ticks <= number:  # answered from what has arrived
            pass

    def ctl(self, *argv: str) -> str:
        done = CliRunner().invoke(ctl, [*argv, "--socket", str(self.socket)])
        if done.exception is not None:
            raise done.exception
        return done.stdout


@pytest.fixture
def node(start: Callable[..., Service]) -> Iterator[Node]:
    made = Node(start())
    yield made
    made.client.close()
    made.loop.end()


def test_advice_is_streamed_as_it_changes_and_the_last_is_kept(node: Node) -> None:
    seen: list[Advised] = []

    def follow() -> None:
        for advised in node.client.advice(last=1):
            seen.append(advised)
            node.tick(len(seen) + 10, paused=len(seen) % 2 == 0)
            if len(seen) == 4:
                return

    node.tick(1, paused=True)
    following = threading.Thread(target=follow)
    following.start()
    following.join(WAIT_S)
    assert [advised.advice.sequence for advised in seen] == [1, 11, 12, 13]
    assert [advised.skipped for advised in seen] == [0] * 4
    kept = [advised.advice.sequence for advised in node.client.advice(last=3, follow=False)]
    assert kept == [12, 13, 14]
    assert list(node.client.advice(last=0, follow=False)) == []


def test_the_command_prints_sentences_or_json(node: Node) -> None:
    with pytest.raises(UsageError, match="No advice was given"):
        node.ctl("advice", "--last", "5")
    node.tick(1, paused=False)
    node.tick(2, paused=True)
    first, second = node.ctl("advice", "--last", "5").splitlines()
    assert first.endswith("ppo would do nothing (policy); partition wants the same.")
    assert second.endswith(
        "ppo would pause training (policy); partition decides to do nothing (fits)."
    )
    (line,) = node.ctl("advice", "--last", "1", "--json").splitlines()
    values = json.loads(line)
    assert (values["policy"], values["advised"]) == ("ppo", "pause training")
    assert (values["controller"], values["decided"]) == ("partition", "nothing")


def test_following_without_a_policy_in_that_mode_is_refused(node: Node) -> None:
    node.loop.status.mode = pb.MODE_SHADOW
    node.loop.send_status()
    node.client.set_mode(node.client.status().mode)  # the service has the status by its answer
    with pytest.raises(UsageError, match="No policy is in advice mode"):
        node.ctl("advice")


def test_what_is_kept_and_what_waits_for_a_slow_client_is_bounded() -> None:
    log = AdviceLog(interval_s=0.0, slo_ms=None)
    with log.watchers.watch("local") as watcher:
        for number in range(MOST_KEPT + 50):
            log.take(tick(number, paused=number % 2 == 0))
        assert len(log.last(10_000)) == MOST_KEPT
        assert watcher.queue.qsize() == WATCH_QUEUE
        assert watcher.skipped == MOST_KEPT + 50 - WATCH_QUEUE


def test_the_journal_gets_the_sentence_and_its_parts(tmp_path: Path) -> None:
    journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    journal.settimeout(WAIT_S)
    journal.bind(str(tmp_path / "journal"))
    teller = Journald(tmp_path / "journal")
    log = AdviceLog(interval_s=0.0, slo_ms=None)
    log.tellers.append(lambda one: teller.tell(AdviceEntry(advice=one, slots=("training",))))
    log.take(tick(1, paused=True))
    entry = journal.recv(1 << 16).decode()
    journal.close()
    teller.close()
    for line in (
        "MESSAGE=ppo would pause training (policy); partition decides to do nothing (fits).",
        f"MESSAGE_ID={ADVICE_ID}",
        "STALLWARD_POLICY=ppo",
        "STALLWARD_ADVICE=pause training",
        "STALLWARD_DECIDED=nothing",
    ):
        assert f"{line}\n" in entry
