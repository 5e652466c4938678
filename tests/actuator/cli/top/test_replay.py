"""A recording is shown also where the daemon did not run for a while, or its node was booted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from top_ticks import tick

from stallward.actuator.cli.top import source
from stallward.actuator.cli.top.command import _print
from stallward.actuator.cli.top.history import History
from stallward.actuator.cli.top.source import replayed
from stallward.agent.errors import UsageError


def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *times_s: float) -> Path:
    """A folder whose records are of these times."""
    records = [
        replace(tick(number), sample=replace(tick(number).sample, time_s=time_s))
        for number, time_s in enumerate(times_s)
    ]
    monkeypatch.setattr(source, "read_records", lambda _: iter(records))
    return tmp_path


def test_a_recording_is_shown_beyond_a_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited_s: list[float] = []
    recording = recorded(tmp_path, monkeypatch, 5000.0, 5001.0, 30.0, 31.0, 32.0)
    shown = list(replayed(recording, wait=waited_s.append))
    assert [one.sequence for one in shown] == [0, 1, 2, 3, 4]
    assert waited_s == [1.0, 0.0, 1.0, 1.0]
    with pytest.raises(UsageError, match="ends 3 s after its begin"):
        list(replayed(recording, at_s=4.0))
    history = History(60.0)
    _print(replayed(recording, at_s=2.0, once=True), history)
    view = history.view()
    assert view is not None
    assert view.sequence == 3


def test_what_is_printed_is_never_later_than_the_time_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = recorded(tmp_path, monkeypatch, 0.0, 1000.0, 1900.0, 2000.0, 2001.0, 2800.0)
    for at_s, sequence in ((890.0, 0), (1000.0, 1), (1899.0, 1), (2000.0, 3), (2000.5, 3)):
        history = History(60.0)
        _print(replayed(recording, at_s=at_s, once=True), history)
        view = history.view()
        assert view is not None
        assert view.sequence == sequence
    with pytest.raises(UsageError, match="ends 2800 s after its begin"):
        _print(replayed(recording, at_s=2900.0, once=True), History(60.0))


def test_a_gap_in_a_recording_is_waited_for_shortly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited_s: list[float] = []
    recording = recorded(tmp_path, monkeypatch, 100.0, 101.0, 101.0 + 8 * 3600.0)
    assert len(list(replayed(recording, wait=waited_s.append))) == 3
    assert waited_s == [1.0, 10.0]
