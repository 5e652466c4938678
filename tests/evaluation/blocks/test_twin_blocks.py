"""Comparisons run on the twin with real controllers, guard, recordings, result and report."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from stallward.env.recording.node_facts import node_info
from stallward.env.recording.recording import load_recording
from stallward.env.scenario.file import load_scenario
from stallward.env.testing import small_twin
from stallward.env.twin.inputs.exogenous import Exogenous, ProtectedProgram, SlotProgram
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted, save_fitted
from stallward.env.twin.inputs.parameters import TwinParameters
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.blocks.request import Disturbances, RunRequest
from stallward.evaluation.blocks.twin import TwinRunner, open_twin
from stallward.evaluation.comparison.compare import run_comparison
from stallward.evaluation.comparison.request import ComparisonRequest
from stallward.evaluation.errors import ComparisonError, PlanError
from stallward.evaluation.results.comparison import load_result
from stallward.models.registry import find_policy

PAGES_PER_MIB = 256.0


@pytest.fixture
def twin_file(tmp_path: Path) -> Path:
    """A twin of detector-anon with default parameters, whose two hogs overfill the sandbox."""
    hog = SlotProgram(
        name="anon-a", units_per_s=350.0, anon_pages=(300.0 * PAGES_PER_MIB,), cores=0.5
    )
    scenario = Exogenous(
        name="detector-anon",
        zone_bytes=600 << 20,
        swap_bytes=2 << 30,
        slo_ms=30.0,
        protected=ProtectedProgram(
            request_rate_per_s=15.0,
            service_s=0.008,
            anon_pages=60.0 * PAGES_PER_MIB,
            file_pages=150.0 * PAGES_PER_MIB,
            touch_file_pages=150.0 * PAGES_PER_MIB,
            touch_anon_pages=1000.0,
        ),
        slots=(hog, replace(hog, name="anon-b")),
    )
    path = tmp_path / "twin.json"
    save_fitted(path, FittedTwin(scenario=scenario, draws=(TwinParameters(),), weights=(1.0,)))
    return path


def _request(twin: Path, out: Path, arms: str = "none,static:pause=all,latd") -> ComparisonRequest:
    return ComparisonRequest(
        scenario="detector-anon",
        arms=parse_arms(arms),
        mode="twin",
        rounds=2,
        block_s=8.0,
        burn_in_s=3.0,
        seed=3,
        out=out,
        twin=str(twin),
    )


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_comparison_on_the_twin_end_to_end(tmp_path: Path, twin_file: Path) -> None:
    out = tmp_path / "out"
    result = run_comparison(_request(twin_file, out)).result
    assert load_result(out) == result
    none, paused = result.table.arms["none"].metrics, result.table.arms["static:pause=all"].metrics
    assert (none.impact_p95.value or 0.0) > 1.0, "without pressure the comparison shows nothing"
    assert (paused.p95_ms.value or 1e9) < (none.p95_ms.value or 0.0)
    assert (paused.background_work.value or 0.0) < (none.background_work.value or 0.0)
    assert (paused.paused_share.value or 0.0) > 0.5
    assert none.paused_share.value == 0.0
    assert result.node.kind == "twin"
    page = (out / "report.html").read_text()
    for part in ("on the twin", "static:pause=all", "PSI some", "anon-a paused", "95 %"):
        assert part in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_twin_is_reproducible(tmp_path: Path, twin_file: Path) -> None:
    first, second = (
        run_comparison(replace(_request(twin_file, tmp_path / name, "latd"), rounds=1)).result
        for name in "ab"
    )
    assert first == second


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_another_twin_is_another_comparison(tmp_path: Path, twin_file: Path) -> None:
    run_comparison(_request(twin_file, tmp_path / "a", "none"))
    twin = load_fitted(twin_file)
    save_fitted(twin_file, replace(twin, provenance={"fitted": "again"}))
    with pytest.raises(PlanError, match="twin_sha256"):
        run_comparison(_request(twin_file, tmp_path / "a", "none"))


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_rule_may_terminate_on_the_twin_and_the_report_counts_it(
    tmp_path: Path, twin_file: Path
) -> None:
    twin = load_fitted(twin_file)
    # Without file pages a full zone has nothing available, which is when latd terminates.
    bare = replace(twin.scenario.protected, file_pages=0.0, touch_file_pages=0.0)
    save_fitted(twin_file, replace(twin, scenario=replace(twin.scenario, protected=bare)))
    out = tmp_path / "out"
    result = run_comparison(_request(twin_file, out, "none,latd")).result
    assert result.table.arms["none"].facts.terminated_processes == 0
    assert result.table.arms["latd"].facts.terminated_processes == 2  # one in each block
    page = (out / "report.html").read_text()
    assert "latd * †" in page
    assert "latd: 2 in 2 blocks" in page


@pytest.mark.parametrize("condition", ["alone", "ample", "background", "together"])
def test_every_condition_leaves_a_recording(
    tmp_path: Path, twin_file: Path, condition: str
) -> None:
    runner = open_twin(load_scenario("detector-anon"), str(twin_file))
    request = RunRequest(
        condition=condition,  # type: ignore[arg-type]
        slo_ms=30.0,
        duration_s=4.0,
        burn_in_s=1.0,
        seed=1,
    )
    assert runner.run_block(request, tmp_path / "block") == Disturbances()
    recording = load_recording(tmp_path / "block")
    assert recording.run.condition == condition
    assert len(recording.ticks["time_s"]) == 50
    assert (recording.requests.scheduled_s.size > 0) == (condition != "background")
    assert (recording.units.units.size > 0) == (condition != "alone")


def test_the_twin_of_another_scenario_is_refused(tmp_path: Path, twin_file: Path) -> None:
    twin = load_fitted(twin_file)
    other = FittedTwin(
        scenario=replace(twin.scenario, name="else"), draws=twin.draws, weights=twin.weights
    )
    save_fitted(tmp_path / "other.json", other)
    with pytest.raises(ComparisonError, match="twin of 'else'"):
        open_twin(load_scenario("detector-anon"), str(tmp_path / "other.json"))


def test_a_policy_arm_records_its_policy_and_is_refused_without_one(
    tmp_path: Path, twin_file: Path
) -> None:
    runner: TwinRunner = open_twin(load_scenario("detector-anon"), str(twin_file))
    request = RunRequest(
        condition="together",
        arm=parse_arms("ppo")[0],
        slo_ms=30.0,
        duration_s=2.0,
        burn_in_s=0.0,
        seed=1,
    )
    with pytest.raises(ComparisonError, match="no policy file"):
        runner.run_block(request, tmp_path / "block")
    assert not (tmp_path / "block").exists()
    policy = Path(find_policy("default"))
    assert runner.run_block(replace(request, policy=policy), tmp_path / "block") == Disturbances()
    ran = load_recording(tmp_path / "block").run
    assert ran.policy_sha256 == hashlib.sha256(policy.read_bytes()).hexdigest()


def test_the_twin_of_a_node_runs_without_a_scenario_file(tmp_path: Path) -> None:
    twin = small_twin()
    runner = TwinRunner(twin=twin, scenario=None, node=node_info(tmp_path))
    request = RunRequest(
        condition="together",
        arm=parse_arms("none")[0],
        policy=None,
        slo_ms=30.0,
        duration_s=2.0,
        burn_in_s=0.0,
        seed=1,
    )
    runner.run_block(request, tmp_path / "block")
    ran = load_recording(tmp_path / "block").run
    assert (ran.scenario, ran.scenario_parameters) == (twin.scenario.name, {})
    with pytest.raises(ComparisonError, match="nothing says how much memory would be ample"):
        runner.run_block(replace(request, condition="ample"), tmp_path / "ample")


def test_a_block_of_several_applications_has_the_requests_of_each(tmp_path: Path) -> None:
    scenario = load_scenario("web-and-cache", several=True)
    runner = open_twin(scenario, "default")
    request = RunRequest(
        condition="together", arm=parse_arms("none")[0], slo_ms=2.0, duration_s=4.0, burn_in_s=1.0,
        seed=1,
    )  # fmt: skip
    assert runner.run_block(request, tmp_path / "block") == Disturbances()
    recording = load_recording(tmp_path / "block", several=True)
    assert recording.run.other_applications == ("memcached",)
    web, cache = recording.requests, recording.others["memcached"]
    assert 10 * web.scheduled_s.size < cache.scheduled_s.size, "2,000 a second against 100"
    assert runner.run_block(replace(request, condition="background"), tmp_path / "own") is not None
    assert load_recording(tmp_path / "own").others == {}


@pytest.mark.slow
@pytest.mark.reaches("env/stallward/env/twin/", "models/")
def test_a_comparison_names_the_attainment_of_each_application(tmp_path: Path) -> None:
    request = replace(
        _request(tmp_path, tmp_path / "out", "none,partition"),
        scenario="web-and-cache",
        twin="default",
    )
    result = run_comparison(request).result
    assert load_result(tmp_path / "out") == result
    assert result.method.twin_fitted is False
    for arm in ("none", "partition"):
        each = {one.application: one for one in (result.table.applications or {})[arm]}
        assert list(each) == ["nginx", "memcached"]
        shares = [one.slo_attainment.value for one in each.values()]
        together = result.table.arms[arm].metrics.slo_attainment.value
        assert None not in shares
        assert together is not None
        assert together <= min(share or 0.0 for share in shares) + 1e-9
    page = (tmp_path / "out" / "report.html").read_text()
    assert "The twin is composed and not fitted." in page
