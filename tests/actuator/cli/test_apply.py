"""Desired states from the command line: every lever can be reached, and mistakes are named."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from stallward.actuator.cli.ctl import ctl
from stallward.actuator.client import Granted
from stallward.actuator.record.desired.text import NOTHING, desired_text
from stallward.actuator.record.reasons import Reasons
from stallward.agent.desired import MIB, PROFILES, DesiredState, ProcessRef, SlotDesire, Tuning
from stallward.agent.errors import UsageError
from stallward.agent.file_pages import FilePages
from stallward.agent.threads import ThreadDesire, ThreadRef

ME = f"{os.getpid()}@77"
SLOT_FIELDS: dict[str, tuple[list[str], Any]] = {
    "paused": (["--pause", "1"], True),
    "limit_bytes": (["--limit", "1=200.5"], int(200.5 * MIB)),
    "hard_limit_bytes": (["--hard-limit", "1=300"], 300 * MIB),
    "swap_max_bytes": (["--swap-max", "1=0"], 0),
    "reclaim_to_bytes": (["--reclaim-to", "1=64"], 64 * MIB),
    "cpu_weight": (["--cpu-weight", "1=20"], 20),
    "cpu_max_cores": (["--cpu-max", "1=0.5"], 0.5),
    "io_weight": (["--io-weight", "1=10"], 10),
    "io_max_bytes_per_s": (["--io-max", "1=5"], 5 * MIB),
    "nice": (["--nice", "1=-5"], -5),
    "cpus": (["--cpus", "1=0-2,8"], (0, 1, 2, 8)),
    "page_advice": (["--page-advice", "1=cold"], "cold"),
    "terminated": (["--end", "1"], True),
}
TUNING_FIELDS: dict[str, tuple[list[str], Any]] = {
    "swappiness": (["--swappiness", "10"], 10),
    "protected_swappiness": (["--protected-swappiness", "1"], 1),
    "dirty_background_ratio": (["--dirty-background-ratio", "2.5"], 2.5),
    "dirty_ratio": (["--dirty-ratio", "40"], 40.0),
    "overcommit_memory": (["--overcommit-memory", "2"], 2),
}
PROCESS = ProcessRef(pid=os.getpid(), start_time_ticks=77)
THREAD = ThreadRef(tid=os.getpid(), start_time_ticks=77)
NODE_FIELDS: dict[str, tuple[list[str], Any]] = {
    "stopped": (
        ["--stop-process", ME, "--stop-process", "9@1"],
        (PROCESS, ProcessRef(pid=9, start_time_ticks=1)),
    ),
    "terminate": (["--end-process", ME], PROCESS),
    "protected_threads": (
        ["--thread-slice", f"{ME}=300", "--thread-cpus", "9@1=0-2", "--thread-nice", f"{ME}=-1"],
        (
            ThreadDesire(thread=THREAD, slice_us=300, nice=-1),
            ThreadDesire(thread=ThreadRef(tid=9, start_time_ticks=1), cpus=(0, 1, 2)),
        ),
    ),
    "protect_from_oom": (["--protect-from-oom"], True),
    "protected_low_bytes": (["--protected-low", "128"], 128 * MIB),
    "protected_willneed": (["--protected-willneed"], True),
    "kill_at_once": (["--kill-at-once"], True),
    "file_pages": (
        ["--file-pages", "clear,victim=most-run,scope=all,grab_pages=512,writeback=yes"],
        FilePages(action="clear", victim="most-run", scope="all", grab_pages=512, writeback=True),
    ),
}


class Daemon:
    """Grants everything to a client, and keeps what was asked for last."""

    def __init__(self) -> None:
        self.desired: DesiredState | None = None

    def status(self) -> Any:
        return SimpleNamespace(slots=("training", "batch"))

    def apply(self, desired: DesiredState, *, lease_s: float, holder: str) -> Granted:
        self.desired = desired
        return Granted(granted=desired, reasons=Reasons(), lease_remaining_s=lease_s)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    made = Daemon()

    @contextlib.contextmanager
    def connect(_: Path) -> Iterator[Daemon]:
        yield made

    monkeypatch.setattr("stallward.actuator.cli.apply.connect", connect)
    return made


def apply(daemon: Daemon, *argv: str) -> DesiredState:
    done = CliRunner().invoke(ctl, ["apply", *argv])
    if done.exception is not None:
        raise done.exception
    assert daemon.desired is not None
    return daemon.desired


def _without_options() -> DesiredState:
    return DesiredState(slots=(SlotDesire(), SlotDesire()))


def test_every_lever_of_a_desired_state_has_an_option() -> None:
    assert set(SLOT_FIELDS) == {field.name for field in fields(SlotDesire)}
    assert set(TUNING_FIELDS) == {field.name for field in fields(Tuning)} - {"name"}
    parts = {"slots", "tuning", "applications"}
    assert set(NODE_FIELDS) == {field.name for field in fields(DesiredState)} - parts


@pytest.mark.parametrize("field", SLOT_FIELDS)
def test_an_option_moves_its_lever_of_one_slot_alone(daemon: Daemon, field: str) -> None:
    argv, value = SLOT_FIELDS[field]
    expected = DesiredState(slots=(SlotDesire(), SlotDesire(**{field: value})))
    assert apply(daemon, *argv) == expected


def test_slots_go_by_their_names_too(daemon: Daemon) -> None:
    by_name = apply(daemon, "--pause", "training", "--limit", "batch=64")
    assert by_name == apply(daemon, "--pause", "0", "--limit", "1=64")
    assert by_name.slot(1).limit_bytes == 64 * MIB


@pytest.mark.parametrize("field", TUNING_FIELDS)
def test_an_option_sets_one_setting_of_the_node(daemon: Daemon, field: str) -> None:
    argv, value = TUNING_FIELDS[field]
    assert apply(daemon, *argv).tuning == Tuning(name="custom", **{field: value})


@pytest.mark.parametrize("field", NODE_FIELDS)
def test_an_option_moves_its_lever_of_processes_or_of_the_application(
    daemon: Daemon, field: str
) -> None:
    argv, value = NODE_FIELDS[field]
    expected = DesiredState(slots=_without_options().slots, **{field: value})
    assert apply(daemon, *argv) == expected


def test_options_of_several_slots_and_a_profile_add_up(daemon: Daemon) -> None:
    argv = "--pause 0,1 --limit 0=100 --limit 1=50 --cpu-weight 1=20 --profile flush"
    assert apply(daemon, *argv.split()) == DesiredState(
        slots=(
            SlotDesire(paused=True, limit_bytes=100 * MIB),
            SlotDesire(paused=True, limit_bytes=50 * MIB, cpu_weight=20),
        ),
        tuning=PROFILES[1],
    )


def test_a_setting_beside_a_profile_changes_that_of_the_profile(daemon: Daemon) -> None:
    tuning = apply(daemon, "--profile", "flush", "--dirty-ratio", "50").tuning
    assert tuning == Tuning(name="custom", dirty_background_ratio=2, dirty_ratio=50.0)


def test_a_process_of_this_machine_needs_no_start_time(daemon: Daemon) -> None:
    (process,) = apply(daemon, "--stop-process", str(os.getpid())).stopped
    stat = Path(f"/proc/{os.getpid()}/stat").read_text()
    assert process.start_time_ticks == int(stat.rpartition(")")[2].split()[19])


def test_what_was_granted_is_said_by_the_slots_names(daemon: Daemon) -> None:
    done = CliRunner().invoke(ctl, ["apply", "--pause", "0", "--limit", "1=64"])
    assert "granted: pause training, limit batch to 64 MiB" in done.stdout


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--pause", "5"], "--pause: there is no slot '5'"),
        (["--end", "x"], "--end: there is no slot 'x'"),
        (["--limit", "0"], "--limit 0: '' is not MIB"),
        (["--limit", "0=lots"], "--limit 0=lots: 'lots' is not MIB"),
        (["--limit", "0=inf"], "'inf' is not MIB"),
        (["--limit", "0=nan"], "'nan' is not MIB"),
        (["--limit", "0=-5"], "limit_bytes is -5242880, outside 1.."),
        (["--limit", "9=10"], "--limit: there is no slot '9'"),
        (["--hard-limit", "0=0"], "hard_limit_bytes is 0, outside 1.."),
        (["--cpu-weight", "1=0"], r"cpu_weight is 0, outside 1..10000 \(slot batch\)"),
        (["--cpu-weight", "0=1.5"], "--cpu-weight 0=1.5: '1.5' is not 1..10000"),
        (["--cpu-max", "0=nan"], "cpu_max_cores is nan, not finite"),
        (["--nice", "0=20"], "nice is 20, outside -20..19"),
        (["--cpus", "0=3-1"], "--cpus 0=3-1: '3-1' is not 0-2,8"),
        (["--cpus", "0=0-99999999"], "is not 0-2,8"),
        (["--cpus", "0=9000"], "cpus is 9000, outside 0..8191"),
        (["--page-advice", "0=hot"], "--page-advice 0=hot: 'hot' is not cold|pageout|willneed"),
        (["--swappiness", "300"], "swappiness is 300, outside 0..200"),
        (["--dirty-ratio", "nan"], "dirty_ratio is nan, not finite"),
        (["--overcommit-memory", "3"], "overcommit_memory is 3, outside 0..2"),
        (["--protected-low", "all"], "--protected-low all"),
        (["--protected-low", "-1"], "protected_low_bytes is -1048576"),
        (["--profile", "loud"], "no profile 'loud'"),
        (["--stop-process", "me"], "--stop-process me: that is no process"),
        (["--stop-process", "4194304"], "there is no process 4194304"),
        (["--end-process", "99999999@1"], "pid is 99999999, outside"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_refused_by_its_name(daemon: Daemon, argv: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        apply(daemon, *argv)
    assert daemon.desired is None, "nothing may be applied"


@pytest.mark.usefixtures("daemon")
def test_a_process_of_another_machine_needs_its_start_time() -> None:
    argv = ["apply", "--socket", "node7:9000", "--stop-process", str(os.getpid())]
    done = CliRunner().invoke(ctl, argv)
    assert isinstance(done.exception, UsageError)
    assert "PID@START" in str(done.exception)


@pytest.mark.parametrize("field", [*SLOT_FIELDS, *TUNING_FIELDS, *NODE_FIELDS])
def test_every_lever_has_words(daemon: Daemon, field: str) -> None:
    argv, _ = {**SLOT_FIELDS, **TUNING_FIELDS, **NODE_FIELDS}[field]
    assert desired_text(_without_options()) == NOTHING
    assert desired_text(apply(daemon, *argv)) != NOTHING
