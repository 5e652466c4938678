"""The screen itself, in a terminal of Textual's own."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, RichLog, Static
from top_ticks import tick
from typer.testing import CliRunner

from stallward.actuator.cli.top.history import History
from stallward.actuator.cli.top.screen import TopScreen
from stallward.actuator.cli.top.source import replayed
from stallward.actuator.record.frames import FRAMES_NAME, FrameWriter
from stallward.actuator.record.wire import TICK_RECORD
from stallward.agent.errors import UsageError
from stallward.evaluation.cli.app import app


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    writer = FrameWriter(tmp_path / FRAMES_NAME)
    for number in range(600):  # five minutes; at 4 min the group is limited
        record = tick(number, limit_mib=100 if number >= 480 else None, p95_ms=float(number))
        writer.append(TICK_RECORD.to_wire(record).SerializeToString())
    writer.close()
    return tmp_path


async def shown(pilot: Pilot[None], problem: str) -> None:
    """Wait until the screen names a problem."""
    deadline_s = time.monotonic() + 30.0
    while problem not in str(pilot.app.query_one("#problem", Static).content):
        assert time.monotonic() < deadline_s
        await pilot.pause(0.02)


def test_keys_show_help_sort_filter_and_details() -> None:
    async def run() -> None:
        records = [tick(number, paused=number > 5) for number in range(10)]
        screen = TopScreen(iter(records), History(60.0, ("hog",)), "test")
        async with screen.run_test(size=(120, 40)) as pilot:
            await shown(pilot, "no more ticks")
            assert not screen.query_one("#help").display
            await pilot.press("question_mark")
            await pilot.pause()
            assert screen.query_one("#help").display
            await pilot.press("question_mark", "s", "d")
            await pilot.pause()
            assert not screen.query_one("#help").display
            table, log = screen.query_one("#groups", DataTable), screen.query_one(RichLog)
            assert (table.row_count, len(log.lines)) == (2, 1)
            await pilot.press("f", *"sort", "enter")
            await pilot.pause()
            assert (table.row_count, len(log.lines)) == (1, 0), "no slot has these letters"
            await pilot.press("f", *(["backspace"] * 4), *"ho", "enter")
            await pilot.pause()
            assert (table.row_count, len(log.lines)) == (2, 1)
            assert "up to 120 ms" in str(screen.query_one("#p95-label", Static).content)

    asyncio.run(run())


def test_the_screen_shows_the_newest_tick_and_freezes() -> None:
    async def run() -> None:
        records = [tick(number, paused=number > 5) for number in range(10)]
        screen = TopScreen(iter(records), History(60.0, ("hog",)), "test")
        async with screen.run_test(size=(120, 40)) as pilot:
            await shown(pilot, "no more ticks")
            headline = str(screen.query_one("#headline", Static).content)
            assert "p95 20 ms of at most 60 ms" in headline
            table = screen.query_one("#groups", DataTable)
            assert table.row_count == 2
            assert table.get_row_at(1)[8] == "yes (25 %)"
            assert len(screen.query_one("#changes", RichLog).lines) == 1
            await pilot.press("q")

    asyncio.run(run())


def test_a_source_that_fails_is_named_on_the_screen() -> None:
    def broken() -> object:
        yield tick(0)
        raise UsageError("The daemon went away.")

    async def run() -> None:
        screen = TopScreen(broken(), History(60.0), "test")  # type: ignore[arg-type]
        async with screen.run_test() as pilot:
            await shown(pilot, "The daemon went away.")

    asyncio.run(run())


def test_a_recording_is_shown_from_a_time_on_at_its_own_speed(recording: Path) -> None:
    slept_s: list[float] = []
    shown = list(replayed(recording, at_s=240.0, speed=2.0, sleep=slept_s.append))
    assert shown[0].sequence == 240, "two minutes before, for the curves"
    assert shown[-1].sequence == 599
    assert len(slept_s) == 600 - 481
    assert sum(slept_s) == pytest.approx((599 - 480) * 0.5 / 2.0)


def test_a_time_after_the_end_is_refused(recording: Path) -> None:
    with pytest.raises(UsageError, match="ends 300 s after its begin"):
        list(replayed(recording, at_s=3600.0, sleep=lambda _: None))


def test_the_command_prints_a_recording_once(recording: Path) -> None:
    argv = ["top", "--replay", str(recording), "--at", "250", "--target-ms", "600", "--once"]
    done = CliRunner().invoke(app, argv)
    assert done.exit_code == 0, done.output
    assert "p95 500 ms of at most 600 ms" in done.stdout
    assert "hog limit 100 MiB" in done.stdout


def test_without_a_terminal_the_command_asks_for_text(recording: Path) -> None:
    done = CliRunner().invoke(app, ["top", "--replay", str(recording)])
    assert isinstance(done.exception, UsageError)
    assert "--once" in str(done.exception)
