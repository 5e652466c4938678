"""Watching a process: from invented files with an invented clock, and real programs by steps."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from stallward.actuator.errors import ProcessEndedError, ProcessError
from stallward.env.errors import WorkloadError
from stallward.lens.page_tables import ProcessPages, ProcessReading
from stallward.lens.resident.series import ANONYMOUS, ResidentSeries, name_of
from stallward.lens.resident.single_step import step_through
from stallward.lens.resident.watch import WatchSettings, watch

PID = 4321
PAGE = os.sysconf("SC_PAGE_SIZE")
STAT = f"{PID} (app) S 1 1 1 0 -1 0 " + "0 " * 12 + "99 " + "0 " * 30 + "\n"


class InventedProcess:
    """A process in invented files: one more page every 0.1 s; a Clock that waits by jumping."""

    def __init__(self, proc: Path, *, ends_s: float = 1e9) -> None:
        self.folder = proc / str(PID)
        self.folder.mkdir()
        self.now_s = 0.0
        self.ends_s = ends_s
        self.write()

    def write(self) -> None:
        pages = 10 + round(10 * self.now_s)
        start, end = 100 * PAGE, 1100 * PAGE
        (self.folder / "stat").write_text(STAT)
        line = f"{start:x}-{end:x} rw-p 00000000 00:00 0"
        (self.folder / "maps").write_text(f"{line}\n")
        (self.folder / "smaps").write_text(f"{line}\nReferenced: {3 * PAGE >> 10} kB\n")
        (self.folder / "clear_refs").touch()
        with (self.folder / "pagemap").open("wb") as file:
            file.seek(8 * 100)
            file.write(np.full(pages, 1 << 63, dtype=np.uint64).tobytes())

    def clock(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.write()
        if self.now_s >= self.ends_s:
            shutil.rmtree(self.folder)


def seen(tmp_path: Path, settings: WatchSettings, **process: float) -> ResidentSeries:
    invented = InventedProcess(tmp_path, **process)
    return watch(tmp_path, PID, settings, clock=invented.clock, wait=invented.wait)


def test_a_process_is_looked_at_in_time_and_its_mappings_when_they_change(tmp_path: Path) -> None:
    series = seen(tmp_path, WatchSettings(every_s=0.1, most_s=0.5))
    assert [look.present for look in series.looks] == [10, 11, 12, 13, 14, 15]
    assert series.column("time") == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert [look.reserved for look in series.looks] == [990 - n for n in range(6)]
    assert len(series.changes) == 6
    assert {name_of(change.pages) for change in series.changes} == {ANONYMOUS}
    assert (series.ended_by, series.error, series.clear_s) == ("time", None, None)


def test_windows_of_all_lengths_come_from_clearing_once(tmp_path: Path) -> None:
    series = seen(tmp_path, WatchSettings(every_s=0.1, window_s=0.3, most_s=1.0))
    windows = [None if look.window is None else round(look.window, 3) for look in series.looks]
    assert windows == [None, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1]
    assert {look.referenced for look in series.looks} == {None, 3}


def test_the_end_of_a_process_is_an_error_only_before_its_time(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    series = seen(tmp_path / "a", WatchSettings(every_s=0.1), ends_s=0.35)
    assert (series.ended_by, series.error, len(series.looks)) == ("process", None, 4)
    series = seen(tmp_path / "b", WatchSettings(every_s=0.1, most_s=5.0), ends_s=0.35)
    assert isinstance(series.error, ProcessEndedError)
    assert str(PID) in str(series.error)
    assert len(series.looks) == 4  # what was read is kept


def test_ctrl_c_keeps_what_was_read(tmp_path: Path) -> None:
    invented = InventedProcess(tmp_path)

    def wait(seconds: float) -> None:
        if invented.now_s > 0.25:
            raise KeyboardInterrupt
        invented.wait(seconds)

    series = watch(tmp_path, PID, WatchSettings(every_s=0.1), clock=invented.clock, wait=wait)
    assert (series.ended_by, len(series.looks)) == ("interrupt", 4)


def test_without_any_look_there_is_nothing_to_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_self: ProcessPages) -> ProcessReading:
        raise KeyboardInterrupt

    monkeypatch.setattr(ProcessPages, "read", interrupted)
    with pytest.raises(ProcessEndedError, match=f"{PID} ended before anything was read"):
        seen(tmp_path, WatchSettings())


def test_a_lost_right_keeps_what_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = ProcessPages.read

    def read(self: ProcessPages) -> ProcessReading:
        if not (tmp_path / "allowed").exists():
            raise ProcessError(f"smaps of process {PID} cannot be read.")
        return really(self)

    (tmp_path / "allowed").touch()
    monkeypatch.setattr(ProcessPages, "read", read)
    invented = InventedProcess(tmp_path)

    def wait(seconds: float) -> None:
        invented.wait(seconds)
        (tmp_path / "allowed").unlink()

    series = watch(tmp_path, PID, WatchSettings(every_s=0.1), clock=invented.clock, wait=wait)
    assert (series.ended_by, len(series.looks)) == ("error", 1)
    with pytest.raises(ProcessError, match=str(PID)):
        raise series.error or AssertionError


def test_a_look_that_takes_too_long_does_not_make_later_ones_late(tmp_path: Path) -> None:
    invented = InventedProcess(tmp_path)
    late = [True]

    def clock() -> float:
        if invented.now_s > 0.15 and late:
            late.pop()
            invented.now_s += 0.33
        return invented.now_s

    series = watch(
        tmp_path, PID, WatchSettings(every_s=0.1, most_s=0.9), clock=clock, wait=invented.wait
    )
    times = series.column("time")
    assert times[-1] == pytest.approx(0.9)
    assert np.diff(times)[3:] == pytest.approx(0.1)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_program_is_run_by_single_steps() -> None:
    true = shutil.which("true") or "true"
    series = step_through(Path("/proc"), [true], instructions=5000)
    assert (series.clock, series.ended_by, series.error) == ("instructions", "process", None)
    present = series.column("present")
    assert present[0] < present[-1]  # pages come in as the program touches them
    assert np.diff(series.column("time")) == pytest.approx(5000)
    names = {name_of(change.pages) for change in series.changes}
    assert os.path.realpath(true) in names
    assert "[stack]" in names


def test_a_program_that_is_not_there_is_not_stepped() -> None:
    with pytest.raises(WorkloadError, match="nowhere-to-be-found cannot be started"):
        step_through(Path("/proc"), ["nowhere-to-be-found"], instructions=1)


def test_stepping_ends_in_time_and_leaves_no_process() -> None:
    series = step_through(Path("/proc"), ["sleep", "60"], instructions=10, most_s=0.0)
    assert (series.ended_by, len(series.looks)) == ("time", 2)
    with pytest.raises(ProcessLookupError):
        os.kill(series.pid, 0)
