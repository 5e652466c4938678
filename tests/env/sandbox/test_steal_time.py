"""How much of the processors' time the host took."""

from __future__ import annotations

import time
from types import SimpleNamespace

import psutil
import pytest

from stallward.env.sandbox.steal_time import StealTime


def test_the_share_is_of_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"time_s": 100.0, "steal": 7.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["time_s"])
    monkeypatch.setattr(psutil, "cpu_times", lambda: SimpleNamespace(steal=now["steal"]))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    stolen = StealTime.from_now()
    assert stolen.share() == 0.0
    now |= {"time_s": 140.0, "steal": 11.0}
    assert stolen.share() == pytest.approx(0.05)


def test_kernels_that_do_not_say_count_as_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_times", lambda: SimpleNamespace(user=1.0))
    assert StealTime.from_now().share() == 0.0


def test_this_machine_has_some_share() -> None:
    assert 0.0 <= StealTime.from_now().share() <= 1.0
