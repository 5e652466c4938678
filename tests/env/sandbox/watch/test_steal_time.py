"""Steal time as a share of CPU time."""

from __future__ import annotations

import time
from types import SimpleNamespace

import psutil
import pytest

from stallward.env.sandbox.watch import StealTime, probe_steal_share


def test_steal_time_is_a_share_of_the_time_of_all_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"time_s": 100.0, "steal": 7.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["time_s"])
    monkeypatch.setattr(psutil, "cpu_times", lambda: SimpleNamespace(steal=now["steal"]))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    steal_time = StealTime.from_now()
    assert steal_time.share() == 0.0
    now |= {"time_s": 140.0, "steal": 11.0}
    assert steal_time.share() == pytest.approx(0.05)


def test_steal_time_is_0_if_the_kernel_does_not_report_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_times", lambda: SimpleNamespace(user=1.0))
    assert StealTime.from_now().share() == 0.0


def test_the_steal_time_of_this_machine_is_a_share() -> None:
    assert 0.0 <= StealTime.from_now().share() <= 1.0


def test_a_probe_keeps_every_cpu_busy_and_reports_a_share() -> None:
    used_s = time.process_time()
    assert 0.0 <= probe_steal_share(0.3) <= 1.0
    assert time.process_time() - used_s > 0.02, "nothing was computed"
