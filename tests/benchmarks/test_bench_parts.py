"""Parts of the benchmark: earlyoom beside the daemon, clients, and the memory of imports."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stallward.benchmarks.calls import MEANINGS, Clients, Seen, Watched, _storm, figures_of
from stallward.benchmarks.earlyoom import Earlyoom
from stallward.benchmarks.memory import measure_import


@pytest.fixture
def peer_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program with the name and the output of earlyoom."""
    script = tmp_path / "earlyoom"
    script.write_text(
        "#!/bin/sh\n"
        'echo "$@" > "$(dirname "$0")/arguments"\n'
        'echo "sending SIGTERM when mem <= 10.00% and swap <= 10.00%,"\n'
        'echo "low memory! at or below SIGTERM limits: mem 10.00%, swap 10.00%"\n'
        'echo "sending SIGTERM to process 12 uid 0 \\"hog\\""\n'
        "exec sleep 60\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return script


def test_earlyoom_is_started_without_acting_and_is_ended(peer_script: Path) -> None:
    arguments = peer_script.with_name("arguments")
    with Earlyoom() as peer:
        while not arguments.exists():
            pass
    assert "--dryrun" in arguments.read_text().split()
    assert peer.actions == 1
    assert peer.rss_mib is not None
    assert peer.rss_mib > 0
    assert peer.cpu_share is not None


def test_without_earlyoom_its_figures_are_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with Earlyoom() as peer:
        pass
    assert (peer.cpu_share, peer.rss_mib, peer.actions) == (None, None, None)


def test_the_memory_of_an_import_is_measured_in_a_separate_process() -> None:
    bare = measure_import("loop", "Python itself", "pass\n", 0.0)
    more = measure_import("loop", "a big list", "kept = list(range(2_000_000))\n", bare.rss_mib)
    assert 4.0 < bare.rss_mib < 40.0
    assert bare.private_mib <= bare.rss_mib
    assert more.added_mib > 50.0
    assert more.anon_mib > 50.0


def test_ticks_that_a_watcher_was_not_told_of_are_counted() -> None:
    complete = Watched(received=10, first=5, last=14)
    slow = Watched(received=6, skipped=4, first=5, last=14)
    cheated = Watched(received=6, skipped=1, first=5, last=14)
    shut_out = Watched()
    seen = Seen(durations_ms=[1.0] * 98 + [30.0] * 2, watched=[complete, slow, cheated, shut_out])
    figures = figures_of(seen, np.array([0.1, 0.2, 50.0, 0.3]), 10.0)
    assert figures.keys() == MEANINGS.keys()
    assert figures["calls_per_s"] == 10.0
    assert figures["call_p50_ms"] == 1.0
    assert figures["call_p99_ms"] == 30.0
    assert figures["ticks_kept_share"] == 0.75
    assert figures["watchers"] == 3
    assert figures["watched_share"] == pytest.approx(22 / 30)
    assert figures["watched_uncounted"] == 3


@pytest.mark.parametrize(("rate", "each_s"), [(1000.0, 0.008), (0.5, 16.0), (0.0, None)])
def test_calls_are_as_frequent_as_was_asked_for(
    rate: float, each_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    async def call(_stub: Any, _seen: Seen, _next: float, apart_s: float, _end: float) -> None:
        asked.append(apart_s)

    monkeypatch.setattr("stallward.benchmarks.calls._call_paced", call)
    asyncio.run(_storm("/nonexistent", Clients(calls_per_s=rate, seconds=0.0)))
    assert asked == ([] if each_s is None else [each_s] * 8)


def test_without_calls_and_watchers_nothing_is_claimed() -> None:
    figures = figures_of(Seen(), np.array([]), 10.0)
    assert (
        figures["call_p99_ms"] is figures["ticks_kept_share"] is figures["watched_share"] is None
    )
