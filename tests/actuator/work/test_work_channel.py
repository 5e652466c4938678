"""From the collector to the loop: nothing is waited for, and silence is a fault."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.errors import FramesError
from stallward.actuator.ipc.options import Modules
from stallward.actuator.runtime.process_start import command_line
from stallward.actuator.runtime.waiting_messages import pack, unpack
from stallward.actuator.work.channel import WorkChannel
from stallward.actuator.work.collector import SlotMeter, make_reader
from stallward.actuator.work.config import (
    CommandWork,
    CpuWork,
    FileWork,
    SlotWork,
    WorkOptions,
)
from stallward.actuator.work.counter import WorkReport
from stallward.agent.sample import WorkFault, WorkSource

WAIT_S = 60.0
Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def _report(slot: int = 0, sent_s: float = 10.0, fault: WorkFault = WorkFault.NONE) -> WorkReport:
    return WorkReport(
        slot=slot, sent_s=sent_s, units=40.0, known_s=8.0, read_s=9.5, fault=fault, detail="is bad"
    )


def test_messages_survive_and_damaged_ones_are_refused() -> None:
    for report in (_report(), _report(3, fault=WorkFault.SILENT)):
        assert unpack(WorkReport, pack(report)) == report
    for damaged in (b"", b"x", pack(_report())[:20], b"\x09" + pack(_report())[1:]):
        with pytest.raises(FramesError):
            unpack(WorkReport, damaged)


def test_a_slot_without_a_source_has_its_processor_time(ends: Ends) -> None:
    channel = WorkChannel([CpuWork(), FileWork(path=Path("/n"), unit="steps")], ends[0])
    (before,) = channel.read(9.0)
    assert (before.slot, before.source, before.fault) == (1, WorkSource.FILE, WorkFault.NOT_READ)
    ends[1].send(b"damaged")
    ends[1].send(pack(_report(1)))
    (work,) = channel.read(10.0)
    assert (work.unit, work.units, work.known_s, work.read_s) == ("steps", 40.0, 8.0, 9.5)
    assert (work.fault, channel.faults()) == (WorkFault.NONE, ("", ""))


def test_faults_are_said_and_silence_is_one(ends: Ends) -> None:
    channel = WorkChannel([FileWork(path=Path("/n"), period_s=1.0)], ends[0])
    ends[1].send(pack(_report(fault=WorkFault.ABSENT)))
    assert channel.read(10.0)[0].fault is WorkFault.ABSENT
    assert channel.faults() == ("/n is bad",)
    (work,) = channel.read(100.0)
    assert (work.fault, work.units) == (WorkFault.SILENT, 40.0)
    assert channel.faults() == ("/n is not reported",)


def test_numbers_that_cannot_be_are_not_taken(ends: Ends) -> None:
    channel = WorkChannel([FileWork(path=Path("/n"))], ends[0])
    for units in (float("nan"), -1.0, 1e300):
        report = WorkReport(
            slot=0, sent_s=1.0, units=units, known_s=1.0, read_s=1.0, fault=WorkFault.NONE
        )
        ends[1].send(pack(report))
    assert channel.read(1.0)[0].fault is WorkFault.NOT_READ


def test_a_meter_goes_on_when_nobody_listens_and_when_its_reader_breaks(
    tmp_path: Path, ends: Ends
) -> None:
    class Broken:
        def read(self) -> dict[str, float]:
            raise ZeroDivisionError

        def close(self) -> None: ...

    source = SlotWork(slot=0, work=FileWork(path=tmp_path / "n"))
    channel = WorkChannel([source.work], ends[0])
    ends[1].setblocking(False)
    meter = SlotMeter(source, Broken(), ends[1])
    meter.step()
    (work,) = channel.read(time.monotonic())
    assert work.fault is WorkFault.UNREADABLE
    assert "ZeroDivisionError" in channel.faults()[0]
    (tmp_path / "n").write_text("5")
    meter = SlotMeter(source, make_reader(source.work), ends[1])
    for _ in range(5000):  # the socket is full long before
        meter.step()
    began_s = time.monotonic()
    channel.read(time.monotonic())
    assert time.monotonic() - began_s < 5.0


def test_the_process_reads_each_source_by_itself_and_ends_with_its_guardian(
    tmp_path: Path, ends: Ends
) -> None:
    """A command that hangs does not delay the file, and does not outlive the process."""
    marker = tmp_path / "alive"
    hanging = f"trap 'exit' TERM; echo $$ > {marker}; sleep 600"
    sources = (
        SlotWork(slot=0, work=CommandWork(command=("/bin/sh", "-c", hanging), timeout_s=60.0)),
        SlotWork(slot=1, work=FileWork(path=tmp_path / "n", period_s=0.1)),
    )
    life, life_end = socket.socketpair()
    options = WorkOptions(fd=ends[1].fileno(), life_fd=life_end.fileno(), sources=sources)
    process = subprocess.Popen(
        command_line(Modules().work, options), pass_fds=(ends[1].fileno(), life_end.fileno())
    )
    channel = WorkChannel([one.work for one in sources], ends[0])
    stop = threading.Event()

    def count() -> None:
        steps = 0
        while not stop.wait(0.01):
            steps += 1
            (tmp_path / "new").write_text(f"{steps}\n")
            (tmp_path / "new").rename(tmp_path / "n")

    counting = threading.Thread(target=count)
    counting.start()
    try:
        deadline_s = time.monotonic() + WAIT_S
        while True:
            hung, counted = channel.read(time.monotonic())
            if counted.known_s > 0.3 and marker.exists() and marker.read_text():
                break
            assert time.monotonic() < deadline_s, (hung, counted)
            time.sleep(0.02)
        assert counted.units > 0.0
        assert hung.fault is WorkFault.NOT_READ
    finally:
        stop.set()
        counting.join()
        life.close()
        life_end.close()
    assert process.wait(WAIT_S) == 0
    started = Path(f"/proc/{marker.read_text().strip()}")
    while started.exists() and "State:\tZ" not in (started / "status").read_text():
        assert time.monotonic() < deadline_s + WAIT_S, "the command outlives the process"
        time.sleep(0.02)
