"""Applications that end run together in real groups, and are measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stallward.env.errors import WorkloadError
from stallward.env.sandbox.block import Workplace
from stallward.env.sandbox.sandbox import Sandbox, open_sandbox
from stallward.env.workloads.native.subtasks import SubtaskProgram
from stallward.papers.experiments.batch import run_batch

MIB = 1 << 20
pytestmark = pytest.mark.live


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with open_sandbox(
        slots=2, limit_bytes=64 * MIB, swap_bytes=128 * MIB, cache_dir=tmp_path
    ) as made:
        yield made


@pytest.fixture
def workplace(programs: Path, tmp_path: Path) -> Workplace:
    return Workplace(data=programs, native=programs, cache_dir=tmp_path)


def program(name: str, *, mib: int = 40, subtasks: int = 2, rounds: int = 3) -> SubtaskProgram:
    return SubtaskProgram(name=name, mib=mib, subtasks=subtasks, rounds=rounds, compute=4)


def test_both_end_although_they_need_more_than_the_zone_has(
    sandbox: Sandbox, workplace: Workplace
) -> None:
    programs = {0: program("a"), 1: program("b", rounds=1, subtasks=5)}
    result = run_batch(sandbox, programs, workplace=workplace, limit_bytes=64 * MIB)
    assert result.oom_kills == 0
    assert set(result.response_s) == {0, 1}
    assert all(0.0 < seconds < 300.0 for seconds in result.response_s.values())
    assert result.peaks[0].memory_bytes > 32 * MIB
    assert result.peaks[1].threads >= 2
    assert set(result.major_faults) == {0, 1}
    assert 0 < sum(result.major_faults.values()) <= result.machine.major_faults
    assert sandbox.zone.pids(recursive=True) == ()


def test_one_that_takes_too_long_is_ended(sandbox: Sandbox, workplace: Workplace) -> None:
    with pytest.raises(WorkloadError, match="slow did not end in time"):
        run_batch(
            sandbox,
            {1: program("slow", rounds=1 << 20)},
            workplace=workplace,
            limit_bytes=64 * MIB,
            timeout_s=0.5,
        )
    assert sandbox.zone.pids(recursive=True) == ()


def test_one_that_fails_is_named_with_what_it_wrote(
    sandbox: Sandbox, workplace: Workplace
) -> None:
    with pytest.raises(WorkloadError, match=r"wrong ended with status 2 .* --mib"):
        run_batch(sandbox, {0: program("wrong", mib=0)}, workplace=workplace, limit_bytes=64 * MIB)


@dataclass(frozen=True, kw_only=True)
class Shell:
    """A command that reports nothing."""

    script: str
    name: str = "shell"
    report: str = ""

    @property
    def argv(self) -> tuple[str, ...]:
        return ("sh", "-c", self.script)


def test_the_end_of_a_program_that_reports_nothing_is_seen(
    sandbox: Sandbox, workplace: Workplace
) -> None:
    programs = {0: Shell(script="sleep 0.5"), 1: Shell(script="true", name="quick")}
    result = run_batch(sandbox, programs, workplace=workplace, limit_bytes=64 * MIB)
    assert 0.5 <= result.response_s[0] < 60.0
    assert result.response_s[1] < result.response_s[0]
    assert result.oom_kills == 0


def test_a_part_that_the_kernel_killed_makes_the_run_invalid_and_no_error(
    tmp_path: Path, programs: Path
) -> None:
    """The child needs more than there is; its parent then fails with a status of its own."""
    child = f"{sys.executable} -c 'bytearray(200 << 20)'"
    with open_sandbox(slots=1, limit_bytes=64 * MIB, swap_bytes=0, cache_dir=tmp_path) as made:
        result = run_batch(
            made,
            {0: Shell(script=f"{child} || exit 2")},
            workplace=Workplace(data=programs, native=programs, cache_dir=tmp_path),
            limit_bytes=64 * MIB,
        )
    assert result.oom_kills >= 1
    assert result.response_s == {}
