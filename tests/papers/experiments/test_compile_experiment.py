"""The compile sweep: runs, resuming, figures, the fit and the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from stallward.env.recording.run_info import NodeInfo
from stallward.env.sandbox.watch import GroupPeak
from stallward.evaluation.arms import Arm
from stallward.evaluation.errors import PlanError
from stallward.evaluation.report.experiment_page import render_experiment_page
from stallward.evaluation.results.serialise import load
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.batch import BatchProgram, BatchResult
from stallward.papers.experiments.batch_session import BatchConfiguration
from stallward.papers.experiments.compile.experiment import CompileRequest, run_compile_experiment
from stallward.papers.experiments.compile.page import (
    NOT_REPEATED,
    arms_table,
    compile_page,
    headline,
)
from stallward.papers.experiments.compile.published import FOUND
from stallward.papers.experiments.compile.result import CompileResult
from stallward.papers.experiments.compile.steps import ARMS, UNPATCHED, plan_steps
from stallward.papers.experiments.machine_use import MachineUse
from stallward.papers.experiments.runs import RESULT_FILE

pytestmark = pytest.mark.reaches()

SIZES = (64, 96, 128, 256)
K, C_S = 9e8, 8.0
SLOWER = {"promote most-run": 1.5, "deactivate": 0.8}


@dataclass
class InventedCompiler:
    """Compiles in ``k / M^4 + c`` seconds; some arms are slower or faster."""

    interrupt_at: int = -1
    noise: float = 0.02
    ran: list[str] = field(default_factory=list)

    @property
    def node(self) -> NodeInfo:
        return NodeInfo(kind="hybrid", kernel="6.18", cpu_count=2, memory_total_bytes=8 << 30)

    def run(
        self,
        configuration: BatchConfiguration,
        programs: Mapping[int, BatchProgram],
        *,
        arm: Arm,
        seed: int,
    ) -> BatchResult:
        if len(self.ran) == self.interrupt_at:
            raise KeyboardInterrupt
        rng = np.random.default_rng([seed, len(self.ran)])
        self.ran.append(f"{configuration.name} {arm.spec}")
        mib = configuration.zone_bytes >> 20
        seconds = (K / mib**4 + C_S) * SLOWER.get(arm.label, 1.0)
        seconds *= float(np.exp(self.noise * rng.normal()))
        return BatchResult(
            response_s=dict.fromkeys(programs, seconds),
            peaks=(GroupPeak(memory_bytes=140 << 20, threads=12),),
            major_faults=dict.fromkeys(programs, 900),
            oom_kills=0,
            stolen_share=0.01,
            machine=MachineUse(
                idle_s=seconds, major_faults=1000, disk_requests=500, disk_bytes=64 << 20
            ),
        )

    @contextmanager
    def opened(self) -> Iterator[InventedCompiler]:
        yield self


def run(out: Path, compiler: InventedCompiler | None = None, **changed: object) -> CompileResult:
    compiler = compiler or InventedCompiler()
    request = CompileRequest(out=out, sizes_mib=SIZES, repeats=3, minutes=10.0)
    changed_request = replace(request, **changed)  # type: ignore[arg-type]
    return run_compile_experiment(changed_request, opener=compiler.opened)


def test_every_arm_is_compared_with_the_unpatched_kernel(tmp_path: Path) -> None:
    result = run(tmp_path / "out")
    assert result.done_runs == result.planned_runs == len(SIZES) * len(ARMS) * 3
    assert [size.zone_mib for size in result.sizes] == list(SIZES)
    slow, fast = result.ratios["promote most-run"], result.ratios["deactivate"]
    assert slow.value == pytest.approx(1.5, rel=0.05)
    assert fast.value == pytest.approx(0.8, rel=0.05)
    assert slow.low is not None
    assert slow.low > 1.0
    assert result.ratios[UNPATCHED].value == pytest.approx(1.0)
    found = result.sizes[0].arms["flush"]
    assert found.idle_share == pytest.approx(0.5)
    assert (found.major_faults, found.disk_requests, found.disk_mib) == (1000, 500, 64)
    assert "faster than the unpatched kernel over all sizes: deactivate" in headline(result)
    assert "slower: promote most-run" in headline(result)


def test_the_fit_of_the_thesis_is_found_again(tmp_path: Path) -> None:
    result = run(tmp_path / "out", InventedCompiler(noise=0.0))
    assert result.fit is not None
    assert result.free_fit is not None
    assert result.fit.power == 4
    assert result.fit.k == pytest.approx(K, rel=1e-6)
    assert result.fit.c_s == pytest.approx(C_S, rel=1e-6)
    assert result.free_fit.power == pytest.approx(4.0, rel=0.02)
    assert result.fit.explained_share == pytest.approx(1.0)


def test_the_most_extreme_runs_are_left_out_of_the_fit(tmp_path: Path) -> None:
    """One run that took a thousand times as long changes nothing."""
    compiler = InventedCompiler(noise=0.0)
    original = compiler.run

    def run_one(*args: object, **kwargs: object) -> BatchResult:
        result = original(*args, **kwargs)  # type: ignore[arg-type]
        first = sum(" none" in one for one in compiler.ran) == 1
        slow = first and compiler.ran[-1].endswith(" none")
        return replace(result, response_s={0: 9000.0}) if slow else result

    compiler.run = run_one  # type: ignore[method-assign]
    result = run(tmp_path / "out", compiler)
    assert max(second for size in result.sizes for second in size.arms[UNPATCHED].seconds) == 9000
    assert result.fit is not None
    assert result.fit.c_s == pytest.approx(C_S, rel=1e-6)


def test_what_was_interrupted_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    first, second = InventedCompiler(interrupt_at=20), InventedCompiler()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", first)
    result = run(tmp_path / "out", second)
    assert len(first.ran) + len(second.ran) == result.planned_runs
    assert load(CompileResult, tmp_path / "out" / RESULT_FILE) == result
    more = InventedCompiler()
    run(tmp_path / "out", more, repeats=4)
    assert len(more.ran) == len(SIZES) * len(ARMS)
    with pytest.raises(PlanError, match="with other settings"):
        run(tmp_path / "out", sizes_mib=(64,))


def test_without_time_nothing_new_runs(tmp_path: Path) -> None:
    with pytest.raises(ReplicationError, match="No run is finished"):
        run(tmp_path / "out", minutes=0.0)


@pytest.mark.parametrize("sizes", [(), (64, 64), (16,), (1 << 20,)])
def test_sizes_that_cannot_be_are_refused(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    with pytest.raises(PlanError):
        CompileRequest(out=tmp_path, sizes_mib=sizes)


def test_arms_are_interleaved_and_have_a_file_each() -> None:
    steps = plan_steps(SIZES, 2, 1)
    assert len({step.key for step in steps}) == len(steps)
    assert all("/" not in step.key and " " not in step.key for step in steps)
    half = len(steps) // 2
    assert {step.repeat for step in steps[:half]} == {1}
    assert [step.arm for step in steps[: len(ARMS)]] != list(ARMS)
    assert set(FOUND) == set(ARMS) - {UNPATCHED}


@pytest.mark.slow
def test_the_page_has_pictures_and_says_what_could_not_be_repeated(tmp_path: Path) -> None:
    result = run(tmp_path / "out")
    html = render_experiment_page(compile_page(result))
    assert html.count("<svg") == 1 + len(ARMS) - 1
    for text in NOT_REPEATED:
        assert text.split(":")[0] in html
    assert "T = 9" in html
    table = arms_table(result)
    assert len(table.rows) == len(ARMS) - 1
    assert "1.5" in {row[0]: row[3] for row in table.rows}["promote most-run"]


def test_a_page_of_an_unfinished_repeat_says_so(tmp_path: Path) -> None:
    compiler = InventedCompiler(interrupt_at=3)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", compiler)
    result = run(tmp_path / "out", minutes=0.0)
    assert result.sizes == ()
    assert headline(result) == "No repeat is complete yet."
    assert "3 of 132 runs" in render_experiment_page(compile_page(result))
