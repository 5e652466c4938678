"""Tests that kills are attributed to the group whose limit was reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.env.sandbox.oom_log import OomLog, parse_oom_kill

# As kernel 6.18 writes it, here from inside a container.
RECORD = (
    "4,1201,8843211,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,"
    "mems_allowed=0,oom_memcg={limited},task_memcg={group},task={program},pid=812,uid=0\n"
    " SUBSYSTEM=x\n"
)


@pytest.mark.parametrize(
    ("limited", "slots", "ours"),
    [
        ("/box/stallward/7-ab/slot0", ["stallward/7-ab/slot0"], True),
        ("/stallward/7-ab/slot0/inner", ["stallward/7-ab/slot0"], True),
        ("/stallward/7-ab/slot01", ["stallward/7-ab/slot0"], False),
        ("/stallward/7-ab", ["stallward/7-ab/slot0"], False),
        ("/", ["stallward/7-ab/slot0"], False),
    ],
)
def test_a_kill_counts_for_the_group_whose_limit_was_reached(
    limited: str, slots: list[str], ours: bool
) -> None:
    record = RECORD.format(limited=limited, group=f"{limited}/x", program="stress-ng-vm")
    kill = parse_oom_kill(record)
    assert kill is not None
    assert (kill.pid, kill.program) == (812, "stress-ng-vm")
    assert kill.under_limit_of(slots) is ours


@pytest.mark.parametrize("program", ["a,pid=1,uid=0", "x", "()", "oom_memcg=/stallward"])
def test_the_name_of_a_program_fakes_no_limit(program: str) -> None:
    record = RECORD.format(limited="/a/b", group="/a/b", program=program)
    kill = parse_oom_kill(record)
    assert kill is not None
    assert (kill.limited, kill.pid) == ("/a/b", 812)


@pytest.mark.parametrize(
    "record",
    ["", "4,1,2,-;usb 1-1: new device", "4,1,2,-;oom-kill:constraint=CONSTRAINT_NONE,x", ";"],
)
def test_other_records_are_no_kills(record: str) -> None:
    assert parse_oom_kill(record) is None


def test_only_kills_after_the_log_was_opened_count(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    old = RECORD.format(limited="/a", group="/a", program="old")
    path.write_text(old)
    log = OomLog(path)
    with path.open("a") as file:
        file.write(RECORD.format(limited="/b", group="/b", program="new"))
    assert [kill.program for kill in log.read()] == ["new"]
    assert log.read() == ()
    log.close()


def test_a_log_that_may_not_be_read_has_no_kills(tmp_path: Path) -> None:
    log = OomLog(tmp_path / "missing")
    assert not log.readable
    assert log.read() == ()
    log.close()
