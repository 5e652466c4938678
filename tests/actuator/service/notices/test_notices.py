"""Notices of what is done to the background: few, complete, and never in the way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from service_without_loop import WAIT_S, Service

from stallward.actuator.ipc.channels import frame_tick
from stallward.actuator.service.notices import (
    LOSS_SHOWN_S,
    MOST_WAITING,
    Journald,
    Notice,
    NoticeCommand,
    SlotChanges,
    Treatment,
    encode,
)
from stallward.proto.v1 import stallward_pb2 as pb

MIB = 1 << 20


def tick(time_s: float, *slots: pb.SlotDesire) -> pb.TickRecord:
    return pb.TickRecord(
        time_s=time_s,
        granted=pb.DesiredState(slots=slots),
        decision=pb.Decision(controller="partition", reason="room 300 MiB"),
    )


FREE, LIMITED = pb.SlotDesire(), pb.SlotDesire(limit_bytes=100 * MIB)
PAUSED = pb.SlotDesire(paused=True, limit_bytes=16 * MIB)


def texts(changes: SlotChanges, *ticks: pb.TickRecord) -> list[str]:
    return [notice.message for record in ticks for notice in changes.take(record)]


def test_what_changes_for_a_slot_is_told_at_once_and_by_name() -> None:
    changes = SlotChanges(("build", "training"), interval_s=10.0)
    assert texts(changes, tick(1.0, FREE, FREE), tick(2.0, FREE, LIMITED)) == [
        "training is limited to 100 MiB by partition: room 300 MiB"
    ]
    assert texts(changes, tick(3.0, PAUSED, LIMITED)) == [
        "build is paused and limited to 16 MiB by partition: room 300 MiB"
    ]
    assert texts(changes, tick(30.0)) == [
        "build is let go by partition: room 300 MiB",
        "training is let go by partition: room 300 MiB",
    ]


def test_a_service_that_was_started_again_does_not_tell_what_holds_already() -> None:
    changes = SlotChanges(("build",), interval_s=0.0)
    assert texts(changes, tick(1.0, LIMITED), tick(2.0, LIMITED)) == []
    assert texts(changes, tick(3.0, FREE)) == ["build is let go by partition: room 300 MiB"]


def test_a_limit_that_moves_is_not_told_again() -> None:
    changes = SlotChanges(("build",), interval_s=0.0)
    moving = [tick(0.5, FREE)] + [
        tick(1.0 + k, pb.SlotDesire(limit_bytes=(100 + k) * MIB)) for k in range(50)
    ]
    assert len(texts(changes, *moving)) == 1


def test_a_limit_that_moves_far_is_told_again() -> None:
    """Half a GiB above what a slot holds restrains nothing, and a tenth of it everything."""
    changes = SlotChanges(("build",), interval_s=10.0)
    sizes = (1000, 900, 501, 500, 100, 100)
    told = [
        texts(changes, tick(20.0 * n, pb.SlotDesire(limit_bytes=size * MIB)))
        for n, size in enumerate((1000, *sizes))
    ]
    assert [len(one) for one in told] == [0, 0, 0, 0, 1, 1, 0]
    assert told[4] == ["build is limited to 500 MiB by partition: room 300 MiB"]


def test_a_notice_says_what_the_slot_holds() -> None:
    changes = SlotChanges(("build",), interval_s=0.0)
    changes.take(tick(0.5, FREE))
    record = tick(1.0, PAUSED)
    record.sample.slots.add(memory_usage_bytes=250 * MIB)
    (notice,) = changes.take(record)
    assert notice.message == (
        "build (250 MiB) is paused and limited to 16 MiB by partition: room 300 MiB"
    )
    assert notice.fields()["STALLWARD_MEMORY_BYTES"] == str(250 * MIB)


def test_a_slot_that_changes_often_is_told_of_once_in_a_while_with_what_was_left_out() -> None:
    changes = SlotChanges(("build",), interval_s=10.0)
    flapping = [tick(0.5 * k, PAUSED if k % 2 else LIMITED) for k in range(2, 200)]
    told = texts(changes, *flapping)
    assert 8 <= len(told) <= 11
    assert "changes before that were not told" in told[-1]


def test_what_is_over_before_it_may_be_told_is_not() -> None:
    changes = SlotChanges(("build",), interval_s=10.0)
    assert len(texts(changes, tick(0.5, FREE), tick(1.0, LIMITED))) == 1
    assert texts(changes, tick(2.0, PAUSED), tick(3.0, LIMITED), tick(20.0, LIMITED)) == []


NOTICE = Notice(
    slot="build",
    before=Treatment.FREE,
    now=Treatment.PAUSED,
    limit_bytes=16 * MIB,
    controller="partition",
    reason="two\nlines",
)


def test_the_journal_gets_fields_of_its_own(tmp_path: Path) -> None:
    journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    journal.settimeout(WAIT_S)
    journal.bind(str(tmp_path / "journal"))
    teller = Journald(tmp_path / "journal")
    teller.tell(NOTICE)
    entry = journal.recv(1 << 16)
    assert b"STALLWARD_SLOT=build\n" in entry
    assert b"STALLWARD_LIMIT_BYTES=16777216\n" in entry
    # A value with a line break has its length before it, so no field can be forged.
    assert b"STALLWARD_REASON\n\x09\0\0\0\0\0\0\0two\nlines\n" in entry
    journal.close()
    teller.tell(NOTICE)  # nobody listens any more
    teller.close()


def test_without_a_journal_notices_go_to_standard_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a container or a terminal the operator sees what the daemon does, too."""
    teller = Journald(tmp_path / "nowhere")
    teller.tell(NOTICE)
    teller.close()
    assert capfd.readouterr().err.startswith("stallward service: build is paused")


def test_an_entry_is_what_the_native_protocol_says() -> None:
    assert encode({"A": "1", "B": "x\ny"}) == b"A=1\nB\n\x03\0\0\0\0\0\0\0x\ny\n"


def test_the_command_is_told_by_its_environment_and_no_shell_reads_it(tmp_path: Path) -> None:
    out = tmp_path / "told"
    code = "import os, sys; open(sys.argv[1], 'a').write(repr(dict(os.environ)) + '\\n')"

    async def run() -> None:
        command = NoticeCommand((sys.executable, "-I", "-c", code, str(out)))
        task = asyncio.create_task(command.run_for_ever())
        command.tell(NOTICE)
        command.tell(NOTICE)
        await _until(lambda: out.exists() and len(out.read_text().splitlines()) == 2)
        await _end(task)
        assert command.problem == ""

    asyncio.run(run())
    environment = out.read_text().splitlines()[0]
    assert "'STALLWARD_NOW': 'paused'" in environment
    assert "'STALLWARD_REASON': 'two\\nlines'" in environment
    assert "HOME" not in environment


def test_a_command_that_hangs_is_killed_and_what_waits_behind_it_is_bounded() -> None:
    async def run() -> None:
        command = NoticeCommand((sys.executable, "-c", "import time; time.sleep(60)"), 0.3)
        task = asyncio.create_task(command.run_for_ever())
        for _ in range(MOST_WAITING + 5):
            command.tell(NOTICE)
        assert command.lost == 5
        await _until(lambda: "was killed" in command.problem)
        await _end(task)

    asyncio.run(run())


def test_a_service_that_ends_in_the_moment_in_which_a_command_ends_does_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Process:
        """A command that ends when it is told to."""

        returncode: int | None = None

        def __init__(self) -> None:
            self.ended = asyncio.get_running_loop().create_future()

        async def wait(self) -> int:
            self.returncode = await self.ended
            return self.returncode

    async def run() -> None:
        process = Process()

        async def start(*argv: str, **kwargs: object) -> Process:
            return process

        monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
        command = NoticeCommand(("/bin/true",))
        task = asyncio.create_task(command.run_for_ever())
        command.tell(NOTICE)
        await asyncio.sleep(0.05)  # it waits for the command now
        process.ended.set_result(0)
        await asyncio.sleep(0)  # the wait for the command is over, and its task not yet told
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=WAIT_S)
        assert done == {task}
        assert task.cancelled()

    asyncio.run(run())


def test_lost_notices_are_a_problem_for_some_minutes() -> None:
    now_s = [1000.0]
    command = NoticeCommand(("/bin/true",), now_s=lambda: now_s[0])
    assert command.problem == ""
    for _ in range(MOST_WAITING + 1):
        command.tell(NOTICE)
    assert "1 notices were lost" in command.problem
    now_s[0] += LOSS_SHOWN_S - 1.0
    command.tell(NOTICE)
    now_s[0] += LOSS_SHOWN_S - 1.0
    assert "2 notices were lost" in command.problem
    now_s[0] += 2.0
    assert command.problem == ""


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (("/no/such/program",), "cannot be run (No such file or directory)"),
        (("/bin/false",), "ended with status 1"),
    ],
)
def test_a_command_that_fails_is_a_problem_of_the_service(
    argv: tuple[str, ...], problem: str
) -> None:
    async def run() -> None:
        command = NoticeCommand(argv)
        task = asyncio.create_task(command.run_for_ever())
        command.tell(NOTICE)
        await _until(lambda: problem in command.problem)
        await _end(task)

    asyncio.run(run())


def test_a_program_that_others_can_change_is_not_run(tmp_path: Path) -> None:
    program = tmp_path / "tell"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o777)

    async def run() -> None:
        command = NoticeCommand((str(program),))
        task = asyncio.create_task(command.run_for_ever())
        command.tell(NOTICE)
        await _until(lambda: f"other users can change {program}" in command.problem)
        await _end(task)

    asyncio.run(run())
    assert not (tmp_path / "ran").exists()


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for it: its command is killed before the loop is closed."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _until(done: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.02)


def test_the_service_runs_the_command_when_a_slot_is_paused(tmp_path: Path) -> None:
    out = tmp_path / "told"
    code = "import os, sys; open(sys.argv[1], 'a').write(os.environ['STALLWARD_MESSAGE'])"
    service = Service(
        tmp_path,
        slots=("build",),
        notify_command=(sys.executable, "-I", "-c", code, str(out)),
    )
    try:
        for record in (tick(1.0, FREE), tick(2.0, PAUSED)):
            service.loop.send(frame_tick(record.SerializeToString()))
        deadline_s = time.monotonic() + WAIT_S
        while not (out.exists() and out.read_text()):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        assert out.read_text().startswith("build is paused and limited to 16 MiB")
    finally:
        service.close()
