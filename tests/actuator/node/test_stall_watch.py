"""A stall is seen between two ticks: by reading a PSI file, and by the kernel's trigger."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_names import own_name

from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.node.stall_watch import STALL_US, StallWatch


def write(path: Path, total_us: int | str) -> None:
    line = "avg10=0.00 avg60=0.00 avg300=0.00 total="
    path.write_text(f"some {line}{total_us}\nfull {line}99999999\n")


@pytest.fixture
def psi(tmp_path: Path) -> Path:
    path = tmp_path / "memory.pressure"
    write(path, 12_345)
    return path


def test_only_growth_since_the_last_look_counts(psi: Path) -> None:
    watch = StallWatch(psi, trigger=False)
    assert not watch.has_stalled()  # what was before is no news
    write(psi, 12_345 + STALL_US)
    assert watch.has_stalled()
    assert not watch.has_stalled()
    watch.close()


def test_a_trickle_is_no_stall(psi: Path) -> None:
    watch = StallWatch(psi, trigger=False)
    for i in range(1, 20):
        write(psi, 12_345 + i * (STALL_US - 1))
        assert not watch.has_stalled()
    watch.close()


@pytest.mark.parametrize(
    "content", [b"", b"some", b"some total=\n", b"some total=x\n", b"\xff" * 90]
)
def test_a_malformed_file_is_no_stall(psi: Path, content: bytes) -> None:
    watch = StallWatch(psi, trigger=False)
    psi.write_bytes(content)
    assert not watch.has_stalled()
    write(psi, 12_345 + 2 * STALL_US)
    assert watch.has_stalled()
    watch.close()


def test_a_missing_file_has_a_reason(tmp_path: Path) -> None:
    watch = StallWatch(tmp_path / "gone" / "memory.pressure")
    assert "No such file" in watch.missing
    assert not watch.has_stalled()
    nothing = StallWatch(None)
    assert nothing.missing
    assert not nothing.has_stalled()
    nothing.close()


def test_a_file_that_went_away_is_looked_for_once_a_second(psi: Path) -> None:
    watch = StallWatch(psi, trigger=False)
    psi.unlink()
    watch.detach()
    watch.reopen(100.0)
    assert "No such file" in watch.missing
    write(psi, 99_000)
    watch.reopen(100.9)
    assert not watch.has_stalled()
    watch.reopen(101.0)
    assert watch.missing == ""
    assert not watch.has_stalled(), "what was before is no news"
    write(psi, 99_000 + STALL_US)
    assert watch.has_stalled()
    watch.close()
    watch.reopen(200.0)
    write(psi, 999_000)
    assert not watch.has_stalled(), "closed for good"


@pytest.mark.live
def test_the_kernel_gives_a_trigger_or_a_reason() -> None:
    watch = StallWatch(Path("/proc/pressure/memory"))
    assert (watch.trigger_fd >= 0) == (watch.trigger_missing == "")
    if watch.trigger_fd < 0:
        assert "CAP_SYS_RESOURCE" in watch.trigger_missing
    assert not watch.missing
    watch.close()
    assert watch.trigger_fd == -1
    watch.close()  # harmless


@pytest.mark.live
def test_a_group_made_anew_is_watched_again() -> None:
    group = detect(Paths()).group(f"{own_name()}-watched")
    group.create()
    try:
        assert group.unified_dir is not None
        watch = StallWatch(group.unified_dir / "memory.pressure")
        if watch.missing:
            pytest.skip(watch.missing)
        group.remove()
        group.create()
        assert not watch.has_stalled(), "the old file says nothing any more"
        watch.reopen(100.0)
        assert watch.missing == ""
        assert not watch.has_stalled()
        assert (watch.trigger_fd >= 0) == (watch.trigger_missing == "")
        watch.close()
    finally:
        group.remove()
