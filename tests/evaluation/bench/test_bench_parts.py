"""Parts of the benchmark: earlyoom beside the daemon, and the memory of imports."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from stallward.evaluation.bench.earlyoom import Earlyoom
from stallward.evaluation.bench.memory import measure_import


@pytest.fixture
def peer_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program with the name and the output of earlyoom."""
    script = tmp_path / "earlyoom"
    script.write_text(
        "#!/bin/sh\n"
        'echo "$@" > "$(dirname "$0")/arguments"\n'
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
    assert peer.actions == 2
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
