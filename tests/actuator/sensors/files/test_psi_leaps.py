"""Stall totals that leap by 2^32 ns, as some kernels let them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.actuator.sensors.files import psi as psi_leaps
from stallward.actuator.sensors.files.psi import PsiReader, SteadyTotals

LEAP_US = 2**32 // 1000


class Clock:
    """Stands in for the module ``time``."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(psi_leaps, "time", made)
    return made


def test_a_leap_is_left_out_and_what_comes_after_it_counts(clock: Clock) -> None:
    steady = SteadyTotals()
    assert steady.take((1000, 500), clock.now_s) == (1000, 500)
    for i in range(1, 4):
        clock.now_s += 0.05
        leap = LEAP_US if i >= 2 else 0
        raw = (1000 + leap + 10 * i, 500 + leap + 10 * i)
        stalled = 10 if i == 1 else 10 * (i - 1)
        assert steady.take(raw, clock.now_s) == (1000 + stalled, 500 + stalled)


def test_a_leap_of_full_alone_is_left_out(clock: Clock) -> None:
    steady = SteadyTotals()
    steady.take((1000, 500), clock.now_s)
    clock.now_s += 0.05
    assert steady.take((1100, 500 + LEAP_US), clock.now_s) == (1100, 500)


def test_a_stall_of_the_reader_itself_is_no_leap(clock: Clock) -> None:
    """The reader was stuck, also between the start of its tick and the read."""
    steady = SteadyTotals()
    began_s = clock.now_s
    clock.now_s += 3.0
    steady.take((1000, 0), began_s)
    began_s = clock.now_s
    clock.now_s += 5.0
    assert steady.take((1000 + 8_000_000, 0), began_s) == (8_001_000, 0)


def test_a_file_that_was_away_goes_on_where_it_was(clock: Clock) -> None:
    steady = SteadyTotals()
    steady.take((1000, 0), clock.now_s)
    clock.now_s += 0.05
    steady.take((1000 + LEAP_US, 0), clock.now_s)
    assert steady.take((None, None), clock.now_s) == (None, None)
    clock.now_s += 0.05
    assert steady.take((1010 + LEAP_US, 5), clock.now_s) == (1010, 5)


def test_a_group_that_is_made_anew_starts_from_its_own_totals(clock: Clock) -> None:
    steady = SteadyTotals()
    steady.take((50_000_000, 9_000_000), clock.now_s)
    clock.now_s += 0.05
    assert steady.take((20, 10), clock.now_s) == (20, 10)


def test_the_files_of_a_group_are_read_without_leaps(tmp_path: Path) -> None:
    def write(name: str, total: int) -> None:
        line = f"avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n"
        (tmp_path / f"{name}.pressure").write_text(f"some {line}full {line}")

    names = ("memory", "io", "cpu")
    for name in names:
        write(name, 100)
    reader = PsiReader(tmp_path, ".pressure")
    before = reader.read()
    for name in names:
        write(name, 100 + LEAP_US)
    assert reader.read(io_too=False) == before
    for name in names:
        write(name, 107 + LEAP_US)
    after = reader.read()
    assert (after.memory_some_us, after.memory_full_us, after.cpu_some_us) == (107, 107, 107)
    assert after.io_some_us == 100, "the io file was read again only now"
