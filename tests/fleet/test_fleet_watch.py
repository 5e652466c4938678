"""Watching several services: nothing is lost uncounted, also if nobody takes the ticks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from experiment_node import Node
from service_without_loop import WAIT_S, Service

from stallward.actuator.ipc.channels import frame_tick
from stallward.evaluation.cli import main
from stallward.fleet import Fleet, FleetWatch
from stallward.proto.v1 import stallward_pb2 as pb

Make = Callable[..., dict[str, Node]]
PADDING = "x" * 4000
"""Makes ticks large, so that few of them fit into what the connection itself holds."""


def send(node: Node, numbers: range) -> None:
    """Send ticks, no faster than the service takes them."""
    for sequence in numbers:
        record = pb.TickRecord(sequence=sequence, mode=pb.MODE_OFF)
        record.decision.reason = PADDING
        node.service.loop.send(frame_tick(record.SerializeToString()))
        if sequence % 20 == 0:
            node.client.status()


def send_until_watched(made: dict[str, Node], watch: FleetWatch) -> int:
    """Send ticks to all nodes until each of them is watched; returns the number of the last."""
    deadline_s, sequence = time.monotonic() + WAIT_S, 0
    while not all(count.received for count in watch.counts.values()):
        assert time.monotonic() < deadline_s
        sequence += 1
        for node in made.values():
            send(node, range(sequence, sequence + 1))
        watch.next(0.05)
    return sequence


def wait(done: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_ticks_that_nobody_takes_are_lost_in_the_daemon_and_counted_for_their_node(
    nodes: Make, fleet: Fleet
) -> None:
    made = nodes()
    with FleetWatch(fleet, waiting=8) as watch:
        begun = send_until_watched(made, watch)
        send(made["a"], range(begun + 1, begun + 1501))
        count = watch.counts["a"]
        while count.last < begun + 1500:
            assert watch.next(WAIT_S) is not None
    assert count.lost > 1000
    assert count.received + count.lost == begun + 1500 - count.first + 1
    assert count.unexplained == count.unwatched == 0
    assert [watch.counts[name].lost for name in ("b", "c")] == [0, 0]


@pytest.mark.slow
def test_a_node_that_goes_is_named_and_watched_again_when_it_answers(
    nodes: Make, fleet: Fleet, tmp_path: Path
) -> None:
    made = nodes()
    with FleetWatch(fleet) as watch:
        begun = send_until_watched(made, watch)
        made["c"].service.kill()
        wait(lambda: bool(watch.counts["c"].problem))
        assert "does not answer" in watch.counts["c"].problem
        assert watch.counts["a"].problem == ""
        again = Service(tmp_path / "c")
        node = Node(again)
        try:
            count, sequence = watch.counts["c"], begun + 10
            while count.problem:
                sequence += 1
                send(node, range(sequence, sequence + 1))
                watch.next(0.05)
            assert count.unwatched >= 10
            assert count.received + count.unwatched == count.last - count.first + 1
        finally:
            node.end()
            again.close()


def test_the_command_prints_the_ticks_of_all_nodes_and_what_became_of_them(
    nodes: Make, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made, done = nodes(), threading.Event()

    def tick() -> None:
        sequence = 0
        while not done.is_set():
            sequence += 1
            for node in made.values():
                send(node, range(sequence, sequence + 1))

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        assert main(["ctl", "watch", "--nodes", file, "--count", "30", "--json"]) == 0
    finally:
        done.set()
        thread.join()
    said, summary = capsys.readouterr()
    lines = [json.loads(line) for line in said.splitlines()]
    assert len(lines) == 30
    assert {one["node"] for one in lines} <= {"a", "b", "c"}
    assert lines[0]["tick"]["sequence"] > 0
    assert "3 nodes: " in summary.splitlines()[-1]
