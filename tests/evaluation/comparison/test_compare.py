"""Comparisons of known blocks: resuming them, invalid blocks, and the result."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from example_results import NODE

from stallward.env.errors import RecordingError, ScenarioError
from stallward.env.recording.recording import Requests, Units, write_recording
from stallward.env.recording.run_info import NodeInfo, RunInfo
from stallward.env.scenario.file import load_scenario
from stallward.env.scenario.scenario import Scenario
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.blocks.request import Disturbances, RunRequest
from stallward.evaluation.blocks.store import BlockStore, Settings, plan_blocks
from stallward.evaluation.comparison import compare
from stallward.evaluation.comparison.compare import Comparison, run_comparison
from stallward.evaluation.comparison.request import ComparisonRequest
from stallward.evaluation.errors import ComparisonError, PlanError
from stallward.proto.v1 import stallward_pb2 as pb

LATENCY_MS = {"alone": 10.0, "ample": 12.0, "background": 0.0, "none": 200.0, "latd": 20.0}


@dataclass
class KnownRunner:
    """A runner that writes real recordings of invented blocks."""

    interrupt_at: int = -1
    oom_first: dict[str, int] = field(default_factory=dict)
    stolen_shares: dict[str, list[float]] = field(default_factory=dict)
    kernel: str = "test"
    calibration_ratio: float = 1.0
    """How much slower the first block is than others with the same memory."""
    ran: list[str] = field(default_factory=list)
    slo_ms: list[float] = field(default_factory=list)
    lengths_s: list[float] = field(default_factory=list)

    @property
    def facts(self) -> NodeInfo:
        return replace(NODE, kernel=self.kernel)

    def run_block(self, request: RunRequest, out: Path) -> Disturbances:
        name = request.arm.label if request.condition == "together" else request.condition
        if len(self.ran) == self.interrupt_at:
            out.mkdir()
            (out / "half").write_text("x")
            raise KeyboardInterrupt
        self.ran.append(name)
        self.slo_ms.append(request.slo_ms)
        self.lengths_s.append(request.duration_s)
        shares = self.stolen_shares.get(name)
        share = shares.pop(0) if shares else 0.0
        slower = self.calibration_ratio if len(self.ran) == 1 else 1.0
        _record(out, request, name, share, slower * LATENCY_MS[name])
        kills_left = self.oom_first.get(name, 0)
        self.oom_first[name] = max(kills_left - 1, 0)
        return Disturbances(oom_kills=int(kills_left > 0), steal_share=share)


def _record(
    out: Path, request: RunRequest, name: str, stolen_share: float, latency_ms: float
) -> None:
    rng = np.random.default_rng([request.seed, len(name)])
    start, length = 1000.0, request.burn_in_s + request.duration_s
    scheduled = start + np.arange(0.0, length, 0.04)
    delay = 1e-3 * latency_ms * np.exp(0.1 * rng.normal(size=scheduled.size))
    requests = Requests(
        scheduled_s=scheduled,
        start_s=scheduled,
        end_s=scheduled + delay,
        ok=np.ones(scheduled.size, dtype=bool),
    )
    times = start + np.arange(0.0, length, 0.5)
    slots = np.repeat(np.arange(2, dtype=np.int32), times.size)
    rate = 0.0 if name == "alone" else {"background": 10.0, "ample": 9.0}.get(name, 5.0)
    units = Units(slot=slots, time_s=np.tile(times, 2), units=np.tile(rate * (times - start), 2))
    ticks = []
    for i in range(int(length * 10)):
        record = pb.TickRecord(sequence=i, time_s=start + 0.1 * i)
        record.sample.zone.name = "zone"
        record.sample.protected.psi.memory_some_us = 30_000 * i if name == "none" else 0
        for slot in range(2):
            record.sample.slots.add(name=f"slot{slot}")
            record.sample.slot_states.add(paused=name == "latd" and slot == 0)
        ticks.append(record)
    write_recording(
        out,
        run=RunInfo(
            scenario="detector-anon",
            condition=request.condition,
            arm=request.arm.label,
            seed=request.seed,
            start_s=start,
            end_s=start + length,
            burn_in_s=request.burn_in_s,
            sandbox_bytes=1 << 29,
            slo_ms=request.slo_ms,
            node=NodeInfo(kind="none", kernel="test", cpu_count=2, memory_total_bytes=1 << 33),
            slot_names=("a", "b"),
            stolen_share=stolen_share,
        ),
        ticks=ticks,
        requests=Requests.empty() if name == "background" else requests,
        units=units,
    )


@pytest.fixture
def scenario() -> Scenario:
    return load_scenario("detector-anon")


def _comparison(out: Path, rounds: int = 2) -> Comparison:
    request = ComparisonRequest(
        scenario="detector-anon",
        arms=parse_arms("none,latd"),
        mode="twin",
        rounds=rounds,
        block_s=6.0,
        burn_in_s=2.0,
        seed=5,
        out=out,
    )
    settings = Settings(
        scenario="detector-anon",
        scenario_sha256="",
        mode="twin",
        arms=("none", "latd"),
        block_s=6.0,
        burn_in_s=2.0,
        seed=5,
    )
    return Comparison(
        request=request,
        store=BlockStore(out, settings),
        blocks=plan_blocks(request.arms, rounds, 5),
        policies={"none": None, "latd": None},
    )


def _run(comparison: Comparison, runner: KnownRunner, scenario: Scenario) -> None:
    @contextmanager
    def opened() -> Iterator[KnownRunner]:
        yield runner

    comparison.run(opened, scenario, lambda _message, _share: None)


def test_the_result_has_the_schema_the_arms_and_the_figures(
    tmp_path: Path, scenario: Scenario
) -> None:
    comparison, runner = _comparison(tmp_path / "out"), KnownRunner()
    _run(comparison, runner, scenario)
    result = comparison.outcome(scenario).result
    assert (result.schema, result.mode, result.scenario) == (1, "twin", "detector-anon")
    assert list(result.table.arms) == ["none", "latd"]
    assert [arm.blocks for arm in result.table.arms.values()] == [2, 2]
    none, latd = result.table.arms["none"], result.table.arms["latd"]
    assert none.metrics.impact_mean.value == pytest.approx(19.0, rel=0.05)
    assert none.metrics.background_work.value == pytest.approx(0.5, rel=0.01)
    assert none.metrics.psi_some_share.value == pytest.approx(0.3, rel=0.03)
    assert latd.metrics.paused_share.value == pytest.approx(0.5, abs=0.02)
    assert latd.facts.budgets_lifted is True
    assert none.metrics.slo_attainment.value == 0.0


def test_controllers_get_a_target_measured_with_ample_memory(
    tmp_path: Path, scenario: Scenario
) -> None:
    comparison, runner = _comparison(tmp_path / "out"), KnownRunner()
    _run(comparison, runner, scenario)
    assert runner.ran[0] == "ample"
    expected = comparison.controller_slo_ms(scenario)
    assert expected == pytest.approx(1.5 * 12.0 * np.exp(0.1 * 2.33), rel=0.1)
    assert runner.slo_ms[1:] == [expected] * (len(runner.ran) - 1)
    assert scenario.protected.slo.calibration_s == 135.0
    assert runner.lengths_s[0] == 135.0
    assert set(runner.lengths_s[1:]) == {comparison.request.block_s}


def test_arms_are_judged_by_the_target_that_their_controllers_were_given(
    tmp_path: Path, scenario: Scenario
) -> None:
    comparison, runner = _comparison(tmp_path / "out"), KnownRunner(calibration_ratio=0.5)
    _run(comparison, runner, scenario)
    table = comparison.outcome(scenario).result.table
    assert table.slo_ms == comparison.controller_slo_ms(scenario)
    assert set(runner.slo_ms[1:]) == {table.slo_ms}
    assert table.references.ample.slo_attainment.value == 0.0


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_an_interrupted_comparison_runs_only_the_missing_blocks(
    tmp_path: Path, scenario: Scenario
) -> None:
    first, whole = KnownRunner(interrupt_at=4), KnownRunner()
    with pytest.raises(KeyboardInterrupt):
        _run(_comparison(tmp_path / "out"), first, scenario)
    assert not list((tmp_path / "out" / "blocks").glob("*.partial"))
    second = KnownRunner()
    resumed = _comparison(tmp_path / "out")
    _run(resumed, second, scenario)
    uninterrupted = _comparison(tmp_path / "uninterrupted")
    _run(uninterrupted, whole, scenario)
    assert first.ran + second.ran == whole.ran
    assert resumed.outcome(scenario).result == uninterrupted.outcome(scenario).result


@pytest.mark.parametrize("number", [None, 2])
def test_a_damaged_block_is_named_and_measured_again_once_it_is_removed(
    tmp_path: Path, scenario: Scenario, number: int | None
) -> None:
    comparison = _comparison(tmp_path)
    _run(comparison, KnownRunner(), scenario)
    planned = comparison._calibration(scenario) if number is None else comparison.blocks
    block = comparison.store.path(planned[number or 0])
    os.truncate(block / "requests.parquet", 100)
    with pytest.raises(RecordingError, match="truncated") as raised:
        comparison.outcome(scenario)
    assert f"Remove {block} and repeat the command" in raised.value.next_step
    shutil.rmtree(block)
    again = KnownRunner()
    _run(comparison, again, scenario)
    assert len(again.ran) == 1
    comparison.outcome(scenario)


def test_more_rounds_reuse_the_finished_ones(tmp_path: Path, scenario: Scenario) -> None:
    _run(_comparison(tmp_path / "out"), KnownRunner(), scenario)
    more = KnownRunner()
    _run(_comparison(tmp_path / "out", rounds=3), more, scenario)
    assert len(more.ran) == 5


def test_blocks_with_oom_kills_are_counted_and_run_again(
    tmp_path: Path, scenario: Scenario
) -> None:
    comparison, runner = _comparison(tmp_path / "out"), KnownRunner(oom_first={"none": 2})
    _run(comparison, runner, scenario)
    arms = comparison.outcome(scenario).result.table.arms
    assert arms["none"].facts.invalid_blocks == 2
    assert arms["none"].blocks == 2
    assert arms["latd"].facts.invalid_blocks == 0


def test_blocks_of_a_busy_host_are_run_again_and_the_last_one_is_kept(
    tmp_path: Path, scenario: Scenario
) -> None:
    busy = {"none": [0.05, 0.0], "latd": [0.5, 0.2, 0.09, 0.04, 0.05], "ample": [0.019]}
    comparison, runner = _comparison(tmp_path / "out"), KnownRunner(stolen_shares=busy)
    _run(comparison, runner, scenario)
    arms = comparison.outcome(scenario).result.table.arms
    none, latd = arms["none"].facts, arms["latd"].facts
    assert (none.invalid_blocks, none.stolen_share_worst) == (1, 0.0)
    assert (latd.invalid_blocks, latd.stolen_share_worst) == (3, 0.05)
    # The second round expects as much as the first one kept.
    assert runner.ran.count("latd") == 4 + 1
    assert runner.ran.count("ample") == 3, "a block with little steal time was run again"


def test_endless_oom_kills_end_the_comparison(tmp_path: Path, scenario: Scenario) -> None:
    with pytest.raises(ComparisonError, match="the memory of the whole sandbox ran out"):
        _run(_comparison(tmp_path / "out"), KnownRunner(oom_first={"latd": 99}), scenario)
    assert not list((tmp_path / "out" / "blocks").glob("*latd*"))


def test_kills_count_over_all_attempts_to_resume(tmp_path: Path, scenario: Scenario) -> None:
    with pytest.raises(ComparisonError, match="the memory of the whole sandbox ran out"):
        _run(_comparison(tmp_path / "out"), KnownRunner(oom_first={"latd": 99}), scenario)
    again = KnownRunner()
    with pytest.raises(ComparisonError, match="the memory of the whole sandbox ran out"):
        _run(_comparison(tmp_path / "out"), again, scenario)
    assert "latd" not in str(again.ran), "an arm without attempts left was run again"


def test_a_comparison_with_only_invalid_blocks_can_be_resumed(
    tmp_path: Path, scenario: Scenario
) -> None:
    comparison = _comparison(tmp_path / "out")
    comparison.store.note_invalid(comparison.blocks[0])
    comparison.store.forget_if_empty()
    resumed = _comparison(tmp_path / "out")
    assert resumed.store.invalid_runs(resumed.blocks[0]) == 1
    _run(resumed, KnownRunner(), scenario)
    assert resumed.outcome(scenario).result.table.arms["none"].blocks == 2


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_blocks_of_another_machine_are_reported_with_its_facts(
    tmp_path: Path, scenario: Scenario
) -> None:
    _run(_comparison(tmp_path / "out"), KnownRunner(), scenario)
    other = KnownRunner(kernel="another")
    more = _comparison(tmp_path / "out", rounds=3)
    _run(more, other, scenario)
    result = more.outcome(scenario).result
    assert result.node.kernel == "test"
    assert [node.kernel for node in result.other_nodes] == ["another"]


@pytest.mark.parametrize(("block_s", "burn_in_s"), [(1.0, 2.0), (5.0, -1.0), (float("nan"), 0.0)])
def test_lengths_that_cannot_be_measured_are_refused(
    tmp_path: Path, block_s: float, burn_in_s: float
) -> None:
    with pytest.raises(PlanError, match="cannot be measured"):
        ComparisonRequest(
            scenario="x",
            arms=parse_arms("none"),
            mode="twin",
            rounds=1,
            block_s=block_s,
            burn_in_s=burn_in_s,
            seed=1,
            out=tmp_path / "out",
        )


def test_mistakes_leave_no_directory_behind(tmp_path: Path) -> None:
    request = ComparisonRequest(
        scenario="detector-anom",
        arms=parse_arms("none"),
        mode="twin",
        rounds=1,
        block_s=5.0,
        burn_in_s=1.0,
        seed=1,
        out=tmp_path / "out",
    )
    with pytest.raises(Exception, match="detector-anon"):
        run_comparison(request)
    assert not (tmp_path / "out").exists()


ALONE_TOGETHER = """
summary = "a cache and a web server"
[sandbox]
limit_mib = 600
ample_mib = 4096
[[protected]]
name = "cache"
of = "memcached-xz"
slo = { latency_ms = 15 }
[[protected]]
name = "web"
of = "nginx-hogs"
slo = { latency_ms = 50 }
"""


@dataclass
class RunnerOfTwo(KnownRunner):
    """Runs invented blocks of two applications without background."""

    def run_block(self, request: RunRequest, out: Path) -> Disturbances:
        name = request.arm.label if request.condition == "together" else request.condition
        self.ran.append(name)
        self.slo_ms.append(request.slo_ms)
        length_s = request.burn_in_s + request.duration_s
        times_s = 1000.0 + np.arange(0.0, length_s, 0.04)
        requests = {
            application: Requests(
                scheduled_s=times_s,
                start_s=times_s,
                end_s=times_s + slower * LATENCY_MS[name] * 1e-3,
                ok=np.ones(times_s.size, dtype=bool),
            )
            for application, slower in (("cache", 1.0), ("web", 3.0))
        }
        write_recording(
            out,
            run=RunInfo(
                scenario="two",
                condition=request.condition,
                arm=request.arm.label,
                seed=request.seed,
                start_s=1000.0,
                end_s=1000.0 + length_s,
                burn_in_s=request.burn_in_s,
                sandbox_bytes=1 << 29,
                slo_ms=request.slo_ms,
                node=NODE,
                other_applications=("web",),
            ),
            ticks=[pb.TickRecord(sequence=i, time_s=1000.0 + i) for i in range(int(length_s))],
            requests=requests["cache"],
            others={"web": requests["web"]},
            units=Units.empty(),
        )
        return Disturbances()


def _request_of_two(tmp_path: Path, **changed: str) -> ComparisonRequest:
    path = tmp_path / "two.toml"
    path.write_text(ALONE_TOGETHER)
    request = ComparisonRequest(
        scenario=str(path),
        arms=parse_arms("none,latd"),
        mode="live",
        rounds=2,
        block_s=6.0,
        burn_in_s=2.0,
        seed=5,
        out=tmp_path / "out",
    )
    return replace(request, **changed)  # type: ignore[arg-type]


def test_several_applications_without_background_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = RunnerOfTwo()

    @contextmanager
    def opened(*_: object) -> Iterator[RunnerOfTwo]:
        yield runner

    monkeypatch.setattr(compare, "open_runner", opened)
    monkeypatch.setattr(compare, "leave_out", lambda request, _: (request, {}))
    result = run_comparison(_request_of_two(tmp_path)).result
    assert sorted(runner.ran) == sorted(2 * ["alone", "ample", "none", "latd"]), "no background"
    assert set(runner.slo_ms) == {15.0}, "the first one's target"
    assert result.table.applications is not None
    cache, web = result.table.applications["latd"]
    assert (cache.slo_attainment.value, web.slo_attainment.value) == (0.0, 0.0), "20 and 60 ms"
    cache, web = result.table.applications["ample"]
    assert (cache.slo_attainment.value, web.slo_attainment.value) == (1.0, 1.0), "12 and 36 ms"
    assert web.p95_ms.value == pytest.approx(36.0)
    assert result.table.arms["latd"].metrics.background_work.value is None
    assert result.method.groups == ()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Each application" in page
    assert "web p95 at most 50.0 ms" in page


def test_several_applications_have_no_measured_target(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="stated and not measured"):
        run_comparison(_request_of_two(tmp_path, target="tight"))
    assert not (tmp_path / "out").exists()
