"""Tests of reported latencies: accepted and refused messages, and lines on standard input."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from stallward.actuator.client.latency_reports import BATCH, LineBatches, Reported, to_messages
from stallward.actuator.errors import SensorError
from stallward.actuator.ipc.options import ServiceOptions
from stallward.actuator.latency.channel_source import ChannelSource
from stallward.actuator.latency.feed import LatencyFeed
from stallward.actuator.latency.line_format import LineFormat
from stallward.actuator.service import latency_reports
from stallward.actuator.service.latency_reports import MAX_REQUESTS, MAX_STREAMS, LatencyReports
from stallward.actuator.service.loop_link import LoopLink
from stallward.actuator.service.server import _open_reports
from stallward.actuator.service.servicer import Servicer
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield pair
    for end in pair:
        end.close()


async def serve_and_misuse(
    place: Path, reports: LatencyReports
) -> tuple[list[grpc.StatusCode], int]:
    """The codes of calls that exceed a bound, and how many were counted as refused."""
    commands, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    servicer = Servicer(LoopLink(commands), 5.0, {"": reports}, "grpc")
    server = grpc.aio.server()
    pb_grpc.add_ActuatorServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix:{place / 's'}")
    await server.start()
    release = asyncio.Event()

    async def patient() -> AsyncIterator[pb.ReportRequest]:
        yield pb.ReportRequest(requests=[pb.ReportedRequest(latency_ms=5.0)])
        await release.wait()

    async def greedy() -> AsyncIterator[pb.ReportRequest]:
        yield pb.ReportRequest(requests=[pb.ReportedRequest()] * (MAX_REQUESTS + 1))

    codes = []
    async with grpc.aio.insecure_channel(f"unix:{place / 's'}") as channel:
        stub = pb_grpc.ActuatorServiceStub(channel)  # type: ignore[no-untyped-call]
        calls = [stub.Report(patient()) for _ in range(MAX_STREAMS)]
        while reports.streams < MAX_STREAMS:
            await asyncio.sleep(0.01)
        for requests, first in ((patient(), False), (greedy(), True)):
            if first:  # make room
                release.set()
                await asyncio.gather(*calls)
            try:
                await stub.Report(requests)
            except grpc.aio.AioRpcError as error:
                codes.append(error.code())
    await server.stop(None)
    commands.close()
    other.close()
    return codes, sum(servicer.refusals.counts.values())


def test_too_many_streams_and_too_large_messages_are_refused_and_counted(
    ends: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, theirs = ends
    reports = LatencyReports(LatencyFeed(theirs))
    codes, refused = asyncio.run(serve_and_misuse(tmp_path, reports))
    assert codes == [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT]
    assert refused == 2
    assert reports.streams == 0
    source = ChannelSource(ours, name="x", silent_s=60.0, window_s=60.0)
    assert source.read().completed == MAX_STREAMS


def test_streams_of_several_applications_give_way_as_those_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(4)]
    each = _open_reports(
        ServiceOptions(
            socket=Path("/s"),
            command_fd=-1,
            life_fd=-1,
            silence_s=1.0,
            slo_ms=60.0,
            latency_fds=tuple(theirs.detach() for _, theirs in pairs),
            applications=("a", "b", "c", "d"),
        )
    )
    waited_s: list[float] = []

    async def sleep(seconds: float) -> None:
        waited_s.append(seconds)

    monkeypatch.setattr(latency_reports, "asyncio", SimpleNamespace(sleep=sleep))
    with ExitStack() as stack:
        streams = [(one, stack.enter_context(one.stream())) for one in each.values()]
        for reports, stream in streams:
            stream.busy_s = 0.01
            asyncio.run(reports.give_way(stream))
        assert waited_s == [pytest.approx(4 * 3 * 0.01)] * 4, "a third of the time, all together"
    reports = each["a"]
    with reports.stream() as stream:
        stream.busy_s = 0.01
        asyncio.run(reports.give_way(stream))
    assert waited_s[-1] == pytest.approx(3 * 0.01)
    for (ours, _), one in zip(pairs, each.values(), strict=True):
        ours.close()
        one._feed._connection.close()


def test_without_reports_the_latency_is_absent(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    reports = LatencyReports(LatencyFeed(theirs))
    source = ChannelSource(ours, name="x", silent_s=60.0, window_s=60.0)

    async def one_turn() -> None:
        flushing = asyncio.create_task(reports.flush_for_ever())
        await asyncio.sleep(0)
        flushing.cancel()

    asyncio.run(one_turn())
    with pytest.raises(SensorError, match="nobody reports"):
        source.read()
    with reports.stream():
        asyncio.run(one_turn())
        assert source.read().completed == 0


def test_a_client_that_comes_and_goes_between_two_reads_is_heard(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    feed = LatencyFeed(theirs)
    source = ChannelSource(ours, name="x", silent_s=60.0, window_s=60.0)
    feed.fault("nobody reports")
    with LatencyReports(feed).stream() as stream:
        stream.take(pb.ReportRequest(requests=[pb.ReportedRequest(latency_ms=5.0)]))
    feed.fault("nobody reports")
    assert source.read().completed == 1
    assert source.fault == ""
    with pytest.raises(SensorError, match="nobody reports"):
        source.read()


def test_a_report_of_long_ago_does_not_count(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    feed = LatencyFeed(theirs)
    feed.add(5.0)
    feed.flush()
    feed.fault("nobody reports")
    source = ChannelSource(ours, name="x", silent_s=60.0, window_s=1.0)
    with pytest.raises(SensorError, match="nobody reports"):
        source.read(time.monotonic() + 2.0)


def test_requests_before_a_silence_do_not_hide_it(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    feed = LatencyFeed(theirs)
    feed.add(5.0)
    feed.flush()
    source = ChannelSource(ours, name="x", silent_s=1.5, window_s=60.0)
    with pytest.raises(SensorError, match="silent for 2 s"):
        source.read(time.monotonic() + 2.0)


def test_a_long_batch_is_sent_in_parts() -> None:
    batch = [Reported(latency_ms=1.0)] * (2 * BATCH + 1)
    assert [len(m.requests) for m in to_messages([batch, []])] == [BATCH, BATCH, 1, 0]


def test_lines_become_requests_as_they_arrive() -> None:
    read, write = os.pipe()
    batches = LineBatches(read, LineFormat(latency="0", ok="1", latency_unit_s=1e-3))
    arrived = iter(batches)
    os.write(write, b"5 1\nbad\n7")
    assert next(arrived) == [Reported(latency_ms=5.0)]
    os.write(write, b".5 yes\n9 0\n\n")
    assert next(arrived) == [Reported(latency_ms=7.5), Reported(latency_ms=0.0, failed=True)]
    os.write(write, b"x" * 9000)
    assert next(arrived) == []
    os.write(write, b"\n3 1")
    next(arrived)
    os.close(write)
    assert next(arrived) == [Reported(latency_ms=3.0)]
    assert list(arrived) == []
    assert (batches.tally.malformed, batches.tally.first_malformed) == (2, "xxx")
    os.close(read)
