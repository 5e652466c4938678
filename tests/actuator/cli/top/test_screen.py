"""The screen itself, in a terminal of Textual's own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, RichLog, Static
from top_ticks import tick, write_recording
from typer.testing import CliRunner

from stallward.actuator.cli.top import screen as screen_module
from stallward.actuator.cli.top.history import History
from stallward.actuator.cli.top.screen import TopScreen
from stallward.actuator.cli.top.source import LEAD_S, Pace, replayed
from stallward.actuator.record.tick_record import TickRecord
from stallward.agent.errors import UsageError
from stallward.evaluation.cli.app import app


@pytest.fixture(autouse=True)
def _drawn_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests wait for what is drawn, which takes half a second otherwise."""
    monkeypatch.setattr(screen_module, "REFRESH_S", 0.2)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    write_recording(tmp_path, seconds=300)
    return tmp_path


async def shown(pilot: Pilot[None], problem: str) -> None:
    """Wait until the screen is there and names a problem."""
    deadline_s = time.monotonic() + 30.0
    while not any(
        problem in str(one.content) for one in pilot.app.query("#problem").results(Static)
    ):
        assert time.monotonic() < deadline_s
        await pilot.pause(0.02)


def test_keys_show_help_sort_and_details() -> None:
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
            assert "up to 120 ms" in str(screen.query_one("#p95-label", Static).content)

    asyncio.run(run())


def test_only_slots_with_the_letters_of_the_filter_are_listed() -> None:
    async def run() -> None:
        records = [tick(number, paused=number > 5) for number in range(10)]
        screen = TopScreen(iter(records), History(60.0, ("hog",)), "test")
        async with screen.run_test(size=(120, 40)) as pilot:
            await shown(pilot, "no more ticks")
            table, log = screen.query_one("#groups", DataTable), screen.query_one(RichLog)
            await pilot.press("f", "z", "enter")
            await pilot.pause()
            assert (table.row_count, len(log.lines)) == (1, 0), "no slot has this letter"
            await pilot.press("f", "backspace", "h", "enter")
            await pilot.pause()
            assert (table.row_count, len(log.lines)) == (2, 1)

    asyncio.run(run())


def test_a_name_with_brackets_is_shown_as_it_is() -> None:
    async def run() -> None:
        record = tick(0)
        named = replace(record.sample.protected, name="zone/app[blue]")
        record = replace(record, sample=replace(record.sample, protected=named))
        screen = TopScreen(iter([record]), History(60.0, ("hog",)), "test")
        async with screen.run_test(size=(120, 40)) as pilot:
            await shown(pilot, "no more ticks")
            table = screen.query_one("#groups", DataTable)
            columns = [table._get_row_renderables(0).cells[0]]  # what is drawn
            assert "app[blue]" in str(columns[0])

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
            assert str(table.get_row_at(1)[8]) == "yes (25 %)"
            assert len(screen.query_one("#changes", RichLog).lines) == 1
            await pilot.press("q")

    asyncio.run(run())


class Node:
    """Ticks when the test says so."""

    def __init__(self) -> None:
        self._more = threading.Condition()
        self._number = self._wanted = 0

    def tick(self, seconds: int) -> None:
        with self._more:
            self._wanted += 2 * seconds
            self._more.notify()

    def records(self) -> Iterator[TickRecord]:
        while True:
            with self._more:
                assert self._more.wait_for(lambda: self._number < self._wanted, 60.0)
            number = self._number
            yield tick(number, p95_ms=float(number // 2), paused=number >= 80)
            self._number += 1


async def reads(pilot: Pilot[None], *parts: str) -> None:
    """Wait until the second that is shown, and its headline, have some words."""
    await shown(pilot, "")
    when, headline = pilot.app.query_one("#when", Static), pilot.app.query_one("#headline", Static)
    deadline_s = time.monotonic() + 30.0
    while True:
        text = f"{when.content if when.display else 'live'} {headline.content}"
        if all(part in text for part in parts):
            return
        assert time.monotonic() < deadline_s, text
        await pilot.pause(0.02)


def test_keys_lead_back_in_time_and_to_the_newest_second_again() -> None:
    async def run() -> None:
        node = Node()
        screen = TopScreen(node.records(), History(60.0, ("hog",)), "test")
        async with screen.run_test(size=(120, 40)) as pilot:
            await pilot.press("left")
            node.tick(50)
            await reads(pilot, "live", "p95 49 ms")
            log = screen.query_one("#changes", RichLog)
            assert len(log.lines) == 1, "the pause"
            await pilot.press("left", "left")
            await reads(pilot, "Not live, but the past", ", 2 s before the newest", "p95 47 ms")
            node.tick(10)
            await reads(pilot, ", 12 s before the newest", "p95 47 ms")
            await pilot.press("left_square_bracket")
            await reads(pilot, ", 42 s before the newest", "p95 17 ms")
            assert len(log.lines) == 0, "then nothing had been changed"
            await pilot.press("right", "right_square_bracket")
            await reads(pilot, ", 11 s before", "p95 48 ms")
            assert len(log.lines) == 1
            await pilot.press("right_square_bracket")
            await reads(pilot, "live", "p95 59 ms")

    asyncio.run(run())


def test_keys_lead_to_the_oldest_second_and_let_the_screen_stand() -> None:
    async def run() -> None:
        node = Node()
        screen = TopScreen(node.records(), History(60.0, ("hog",)), "test")
        async with screen.run_test(size=(120, 40)) as pilot:
            node.tick(40)
            await reads(pilot, "live", "p95 39 ms")
            await pilot.press("left_square_bracket", "left_square_bracket")
            await reads(pilot, "p95 0 ms")
            await pilot.press("0")
            await reads(pilot, "live", "p95 39 ms")
            await pilot.press("space")
            await reads(pilot, "Not live", ", 0 s before", "p95 39 ms")
            node.tick(1)
            await reads(pilot, ", 1 s before", "p95 39 ms")
            await pilot.press("space")
            await reads(pilot, "live", "p95 40 ms")
            await pilot.press("left", "home")
            await reads(pilot, "live", "p95 40 ms")

    asyncio.run(run())


def test_a_timer_that_is_due_while_the_screen_closes_draws_nothing() -> None:
    async def run() -> None:
        screen = TopScreen(iter(()), History(60.0), "test")
        async with screen.run_test() as pilot:
            await shown(pilot, "no more ticks")
        screen.draw()

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
    waited_s: list[float] = []
    shown = list(replayed(recording, at_s=240.0, wait=waited_s.append))
    assert [shown[0].sequence, shown[-1].sequence] == [0, 599], "with what lies before"
    assert len(waited_s) == 600 - 481
    assert sum(waited_s) == pytest.approx((599 - 480) * 0.5)


def test_little_before_the_time_that_is_asked_for_is_read(tmp_path: Path) -> None:
    write_recording(tmp_path, seconds=20 * 60)
    shown = list(replayed(tmp_path, at_s=1000.0))
    assert shown[0].sequence == 2 * (1000 - LEAD_S)


class Waiting(threading.Thread):
    """Waits for some seconds of a recording."""

    def __init__(self, pace: Pace, seconds: float) -> None:
        super().__init__(daemon=True)
        self._pace, self._seconds = pace, seconds
        self.start()

    def run(self) -> None:
        self._pace.wait(self._seconds)

    def ends(self) -> bool:
        self.join(30.0)
        return not self.is_alive()


def test_the_pace_of_a_recording_is_its_speed_unless_it_stands_or_is_skipped() -> None:
    began_s = time.monotonic()
    assert Waiting(Pace(speed=1000.0), 100.0).ends()
    assert time.monotonic() - began_s >= 0.1
    slow = Pace()
    waiting = Waiting(slow, 3600.0)
    slow.skip(3599.0)
    slow.skip(2.0)
    assert waiting.ends()
    assert Waiting(slow, 0.5).ends(), "what was skipped beyond is due as well"
    fast = Pace(speed=1000.0)
    fast.hold(True)
    waiting = Waiting(fast, 10.0)
    waiting.join(0.1)
    assert waiting.is_alive(), "ten seconds would take a hundredth of one"
    fast.hold(False)
    assert waiting.ends()


def test_a_time_after_the_end_is_refused(recording: Path) -> None:
    with pytest.raises(UsageError, match="ends 300 s after its begin"):
        list(replayed(recording, at_s=3600.0))


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
