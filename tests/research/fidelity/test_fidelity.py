"""Fidelity: its arithmetic, and a whole measurement with a known fit."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest

from stallward.env.recording.node_facts import node_info
from stallward.env.recording.recording import load_recording
from stallward.env.recording.run_info import load_run
from stallward.env.scenario.file import load_scenario
from stallward.env.twin.inputs.exogenous import Exogenous, ProtectedProgram, SlotProgram
from stallward.env.twin.inputs.fitted import FittedTwin, save_fitted
from stallward.env.twin.inputs.parameters import TwinParameters
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.blocks.request import NO_ARM, RunRequest, file_sha256
from stallward.evaluation.blocks.twin import TwinRunner
from stallward.evaluation.errors import EvaluationError, PlanError
from stallward.evaluation.measures.block_measures import BlockMeasures
from stallward.evaluation.results.serialise import from_json, to_json
from stallward.models.registry import find_policy
from stallward.research.cli.fidelity import fidelity
from stallward.research.fidelity import fits as fidelity_fits
from stallward.research.fidelity.distances import (
    ArmFidelity,
    noise_floor,
    spearman,
    summarise_fidelity,
)
from stallward.research.fidelity.fits import Fits
from stallward.research.fidelity.measure import measure_fidelity, run_on_twin
from stallward.research.fidelity.observed import Observed
from stallward.research.fidelity.page import write_page
from stallward.research.fidelity.result import (
    FidelityResult,
    FidelitySummary,
    FidelityTable,
    JudgedTarget,
)
from stallward.research.fidelity.signals import distances, scales_of, signals_of
from stallward.research.fidelity.table import fidelity_rows, signal_rows
from stallward.research.fidelity.targets import load_fidelity_targets
from stallward.training.parallel.local_processes import IN_THIS_PROCESS, LocalProcesses

TARGETS = load_fidelity_targets()


def test_spearman_ranks_ties_and_is_nan_for_too_few_values() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(x, x**3) == pytest.approx(1.0)
    assert spearman(x, -x) == pytest.approx(-1.0)
    assert spearman(np.array([1.0, 1.0, 2.0]), np.array([5.0, 5.0, 9.0])) == pytest.approx(1.0)
    assert np.isnan(spearman(x[:2], x[:2]))
    assert np.isnan(spearman(x, np.ones(4))), "one of them does not vary"
    with_unknown = np.array([1.0, np.nan, 3.0, 4.0])
    assert spearman(x, with_unknown) == pytest.approx(1.0), "only the known pairs count"
    assert np.isnan(spearman(x[:3], with_unknown[:3]))


def test_the_floor_of_one_recording_is_the_difference_of_its_halves() -> None:
    scheduled = np.arange(0.0, 10.0, 0.1)
    block = BlockMeasures(
        duration_s=10.0,
        scheduled_s=scheduled,
        latency_ms=np.where(scheduled < 5.0, 10.0, 20.0),
        ok=np.ones(scheduled.size, dtype=bool),
        units=np.full((10, 1), 3.0),
        psi_some_s=np.zeros(10),
        paused_s=np.zeros(10),
    )
    floor = noise_floor(Observed(blocks=(block,), own_units_per_s=None))
    assert floor.p95 == pytest.approx(np.log(2.0))
    assert floor.work == pytest.approx(0.0)


def _block(*units: float) -> BlockMeasures:
    return BlockMeasures(
        duration_s=4.0,
        scheduled_s=np.zeros(0),
        latency_ms=np.zeros(0),
        ok=np.zeros(0, dtype=bool),
        units=np.tile(np.array(units), (4, 1)),
        psi_some_s=np.zeros(4),
        paused_s=np.zeros(4),
    )


def test_errors_of_groups_do_not_cancel() -> None:
    def floor(*blocks: BlockMeasures) -> float:
        return noise_floor(Observed(blocks=blocks, own_units_per_s=None)).work

    assert floor(_block(2.0, 1.0), _block(1.0, 2.0)) == pytest.approx(np.log(2.0))
    # A group that did nothing in one of them has a large error, and is not left out.
    assert floor(_block(2.0, 0.0), _block(2.0, 1.0)) > 1.0


def test_work_is_the_mean_share_of_the_groups_own_rates() -> None:
    live = Observed(blocks=(_block(5.0, 1.0),), own_units_per_s=np.array([10.0, 1.0]))
    twin = Observed(blocks=(_block(3.0, 2.0),), own_units_per_s=np.array([6.0, 2.0]))
    assert live.work == pytest.approx([0.75])
    row = ArmFidelity(scenario="s", arm="none", live=live, twin=twin)
    # Its units/s have an error, but so have those with the node to itself; the share is right.
    assert row.errors.work == pytest.approx(0.0)
    assert row.row().live_work == pytest.approx(0.75)
    assert row.row().live_ms.p95 is None, "there were no requests"
    summary = summarise_fidelity([row])
    assert summary.p95_error_median is summary.spearman is summary.effect_signs_right is None
    assert summary.background_error_median == pytest.approx(0.0)
    targets = TARGETS.judge(summary)
    assert targets["spearman"] == JudgedTarget(value=None, target=0.9, met=None)
    assert targets["background_error_median"].met
    table = FidelityTable(arms=(row.row(),), not_run=(), summary=summary, targets=targets)
    shown, _ = fidelity_rows(table)
    assert dict(zip(shown.headers, shown.rows[0], strict=True))["p95 live ms"] == "-"


def _served(latency_ms: float, units: float, seed: int = 0) -> BlockMeasures:
    """A block of 40 s with 20 requests a second, around a latency and a rate of units."""
    rng = np.random.default_rng(seed)
    scheduled = np.arange(0.0, 40.0, 0.05)
    return BlockMeasures(
        duration_s=40.0,
        scheduled_s=scheduled,
        latency_ms=latency_ms * np.exp(0.2 * rng.standard_normal(scheduled.size)),
        ok=np.ones(scheduled.size, dtype=bool),
        units=units * (1.0 + 0.1 * rng.standard_normal((40, 1))),
        psi_some_s=np.zeros(40),
        paused_s=np.zeros(40),
    )


def _row(arm: str, live: tuple[float, float], twin: tuple[float, float]) -> ArmFidelity:
    own = np.array([10.0])
    return ArmFidelity(
        scenario="s",
        arm=arm,
        live=Observed(blocks=(_served(*live),), own_units_per_s=own),
        twin=Observed(blocks=(_served(*twin, seed=1),), own_units_per_s=own),
    )


def test_signs_are_counted_between_all_pairs_of_arms_and_of_work_too() -> None:
    right = _row("a", (10.0, 5.0), (12.0, 5.0)), _row("b", (50.0, 8.0), (40.0, 7.0))
    summary = summarise_fidelity([*right, _row("c", (20.0, 5.0), (60.0, 5.0))])
    # Latency: a-b, a-c and b-c; work: a-b and b-c. On the twin the latency b-c has a wrong sign.
    assert summary.effects_counted == 5
    assert summary.effect_signs_right == pytest.approx(4 / 5)
    assert summary.spearman == summary.spearman_worst == pytest.approx(0.5)


def test_a_live_figure_is_covered_if_it_lies_among_those_of_the_blocks_of_the_twin() -> None:
    own = np.array([10.0])
    live = Observed(blocks=(_served(20.0, 5.0),), own_units_per_s=own)
    around = Observed(
        blocks=(_served(18.0, 4.0), _served(22.0, 6.0)), own_units_per_s=np.array([10.0])
    )
    above = Observed(blocks=(_served(30.0, 6.0), _served(40.0, 7.0)), own_units_per_s=own)
    row = ArmFidelity(scenario="s", arm="a", live=live, twin=around)
    assert all(row.covered.values())
    assert set(row.covered) == {"p50", "p95", "p99", "work"}
    assert not any(replace(row, twin=above).covered.values())


def summary_of(**figures: float | None) -> FidelitySummary:
    """A summary whose figures are 0, except those that are given."""
    zero = {one.name: 0 for one in fields(FidelitySummary) if one.name != "scenarios"}
    return FidelitySummary(scenarios={}, **{**zero, **figures})  # type: ignore[arg-type]


def test_a_target_is_met_up_to_its_bound_or_to_the_floor_where_that_is_larger() -> None:
    bounds = {
        "p95_error_median": 0.15, "p95_error_worst": 0.25, "p99_error_median": 0.15,
        "p99_error_worst": 0.25, "background_error_median": 0.1, "effect_signs_right": 1.0,
        "spearman": 0.9, "distance_vs_replay": 0.45,
    }  # fmt: skip
    floors = {"p95_floor_median": 0.1, "p99_floor_median": 0.3}
    met = TARGETS.judge(summary_of(**bounds, **floors))
    assert list(met) == list(bounds)
    assert all(one.met for one in met.values()), "a figure at its bound misses the target"
    worse = bounds | {
        "p95_error_median": 0.16, "p99_error_median": 0.29, "p99_error_worst": 0.26,
        "spearman": 0.89, "effect_signs_right": 0.99, "distance_vs_replay": None,
    }  # fmt: skip
    judged = TARGETS.judge(summary_of(**worse, **floors))
    assert {key for key, one in judged.items() if one.met is False} == {
        "p95_error_median", "p99_error_worst", "spearman", "effect_signs_right",
    }  # fmt: skip
    assert judged["p99_error_median"] == JudgedTarget(value=0.29, target=0.3, met=True)
    assert judged["distance_vs_replay"].met is None


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ('figure = "p95_error_median"\nat_mots = 1', "unknown key 'at_mots'"),
        ("at_most = 1", "figure is missing"),
        ('figure = "p95"\nat_most = 1', "'p95', which is not a figure"),
        ('figure = "spearman"\nat_least = 1\nfloor = "x"', "'x', which is not a figure"),
        ('figure = "spearman"', "exactly one bound"),
        ('figure = "spearman"\nat_least = 1\nat_most = 1', "exactly one bound"),
        ('figure = "spearman"\nat_least = "1"', "at_least is '1', not a number"),
    ],
)
def test_incomplete_or_unknown_targets_are_refused(
    tmp_path: Path, target: str, message: str
) -> None:
    file = tmp_path / "targets.toml"
    file.write_text(f"[[targets]]\n{target}\n")
    with pytest.raises(PlanError, match=message):
        load_fidelity_targets(file)
    with pytest.raises(PlanError, match="cannot be read"):
        load_fidelity_targets(tmp_path / "missing.toml")


def test_an_arm_without_answers_on_the_twin_has_an_error_of_a_factor_of_ten() -> None:
    silent = Observed(blocks=(_block(5.0),), own_units_per_s=np.array([10.0]))
    row = replace(_row("a", (10.0, 5.0), (10.0, 5.0)), twin=silent)
    assert row.errors.p95 == pytest.approx(np.log(10.0))
    assert summarise_fidelity([row]).p95_error_worst == pytest.approx(np.log(10.0))


def test_distances_are_areas_between_distributions_relative_to_the_range_of_the_signal() -> None:
    live = {"x": np.linspace(0.0, 1.0, 500), "flat": np.ones(500)}
    scales = scales_of([live])
    assert set(scales) == {"x"}, "a constant signal is left out"
    assert scales["x"] == pytest.approx(0.9, rel=0.01)
    moved = {"x": live["x"][::-1] + 0.3}
    assert distances(live, moved, scales) == {"x": pytest.approx(0.3 / 0.9, rel=0.01)}
    assert distances(live, {"x": live["x"][::-1]}, scales)["x"] == pytest.approx(0.0, abs=1e-9)
    row = replace(
        _row("a", (10.0, 5.0), (10.0, 5.0)),
        live=Observed(blocks=(), own_units_per_s=None, signals=(live, moved)),
        twin=Observed(blocks=(), own_units_per_s=None, signals=(moved,)),
        replay={"x": live["x"] + 3.0},
        scales=scales,
    )
    assert row.twin_distances["x"] < 0.1 * row.replay_distances["x"]
    assert row.floor_distances["x"] == pytest.approx(0.3 / 0.9, rel=0.01)
    once = replace(row, live=replace(row.live, signals=(live,)))
    # The floor of one run is between its halves, which lie half the range apart.
    assert once.floor_distances["x"] == pytest.approx(0.5 / 0.9, rel=0.01)


@pytest.fixture(scope="module")
def twin() -> FittedTwin:
    hog = SlotProgram(name="anon-a", units_per_s=350.0, anon_pages=(77_000.0,), cores=0.5)
    scenario = Exogenous(
        name="detector-anon",
        zone_bytes=600 << 20,
        swap_bytes=2 << 30,
        slo_ms=30.0,
        protected=ProtectedProgram(
            request_rate_per_s=15.0,
            service_s=0.008,
            anon_pages=15_000.0,
            file_pages=38_000.0,
            # As estimated where nothing is fitted: half of the one, a tenth of the other.
            touch_file_pages=19_000.0,
            touch_anon_pages=1500.0,
        ),
        slots=(hog, replace(hog, name="anon-b")),
    )
    return FittedTwin(scenario=scenario, draws=(TwinParameters(),), weights=(1.0,))


@pytest.fixture(scope="module")
def twin_recordings(tmp_path_factory: pytest.TempPathFactory, twin: FittedTwin) -> Path:
    """Recordings of three arms, run on the twin itself. No test may change them."""
    folder = tmp_path_factory.mktemp("twin_recordings")
    runner = TwinRunner(twin=twin, scenario=load_scenario("detector-anon"), node=node_info(folder))
    for number, arm in enumerate(parse_arms("none,static:pause=all,static:limit=0.4")):
        request = RunRequest(
            condition="together", arm=arm, slo_ms=30.0, duration_s=20.0, burn_in_s=8.0, seed=9
        )
        runner.run_block(request, folder / f"{number}")
    runner.run_block(replace(request, condition="background", arm=NO_ARM), folder / "own")
    return folder


@pytest.fixture
def recordings(twin_recordings: Path, tmp_path: Path) -> Path:
    """A copy of the recordings, which one test may change."""
    return Path(shutil.copytree(twin_recordings, tmp_path / "recordings"))


def page_of(result: FidelityResult, folder: Path) -> str:
    write_page(result, folder / "fidelity.html")
    return (folder / "fidelity.html").read_text()


def known(value: float | None) -> float:
    assert value is not None
    return value


@pytest.fixture
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run few blocks on a twin, where no test looks at how near its figures come."""
    run_few_blocks(monkeypatch)


def run_few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_TWIN_BLOCKS", "_OWN_BLOCKS"):
        monkeypatch.setattr(f"stallward.research.fidelity.measure.{name}", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A fidelity measured with a known fit, and the number of recordings that each fit got."""

    result: FidelityResult
    fitted_to: list[int]


@pytest.fixture(scope="module")
def perfect_fit(twin_recordings: Path, twin: FittedTwin) -> Measured:
    """A measurement in which every fit gives the twin that the recordings come from."""
    fitted_to: list[int] = []

    def fit(paths: list[Path], **_: object) -> FittedTwin:
        fitted_to.append(len(paths))
        return twin

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fidelity_fits, "fit_recordings", fit)
        result = measure_fidelity(
            twin_recordings, fits=Fits(generations=1), executor=IN_THIS_PROCESS
        )
    return Measured(result=result, fitted_to=fitted_to)


def test_runs_on_the_twin_leave_no_folder_and_remove_those_of_killed_processes(
    twin_recordings: Path, twin: FittedTwin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    (temporary / f"stallward-twin-{dead.pid}-x/0").mkdir(parents=True)
    assert len(run_on_twin(twin, load_run(twin_recordings / "0"), NO_ARM, blocks=1, seed=1)) == 1
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_an_arm_has_no_part_in_the_fit_that_it_is_compared_with(perfect_fit: Measured) -> None:
    assert len(perfect_fit.result.table.arms) == 3
    assert perfect_fit.fitted_to == [3, 3, 3], "two other arms, and the background alone"


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_perfect_fit_has_errors_near_the_floor(perfect_fit: Measured) -> None:
    table, summary = perfect_fit.result.table, perfect_fit.result.table.summary
    assert 0.0 <= known(summary.p95_error_median) <= known(summary.p95_error_worst)
    assert known(summary.p95_error_median) < 0.5
    assert known(summary.p99_error_median) <= known(summary.p99_error_worst)
    assert known(summary.background_error_median) < 0.2
    assert known(summary.distance_vs_replay) < 0.45
    assert table.targets["distance_vs_replay"].met


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_perfect_fit_has_every_sign_right(perfect_fit: Measured) -> None:
    summary = perfect_fit.result.table.summary
    scenario = summary.scenarios["detector-anon"]
    assert summary.effect_signs_right == 1.0
    assert scenario.effects_right == scenario.effects_counted > 0
    assert summary.spearman == scenario.spearman, "there is no other scenario"


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_work_is_a_share_of_the_rate_with_the_node_to_itself(perfect_fit: Measured) -> None:
    none = next(row for row in perfect_fit.result.table.arms if row.arm == "none")
    assert 0.1 < known(none.live_work) < 1.1


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_fidelity_is_read_back_as_it_was_written(perfect_fit: Measured) -> None:
    assert from_json(FidelityResult, to_json(perfect_fit.result)) == perfect_fit.result
    assert perfect_fit.result.left_out_scenarios is None


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_tables_have_a_row_for_each_arm_and_signal(perfect_fit: Measured) -> None:
    table = perfect_fit.result.table
    shown, notes = fidelity_rows(table)
    assert len(shown.rows) == 3
    assert all(len(row) == len(shown.headers) for row in shown.rows)
    assert any("right sign" in note and "(target 1.00: met)" in note for note in notes)
    signals = signal_rows(table)
    assert {row[0] for row in signals.rows} == set(table.arms[0].distances.twin)
    assert all(len(row) == len(signals.headers) for row in signals.rows)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_page_draws_every_arm_and_every_signal_without_a_script(
    perfect_fit: Measured, tmp_path: Path
) -> None:
    page = page_of(perfect_fit.result, tmp_path)
    assert page.count(": live ") == 2 * 3, "latency and work of each arm"
    assert "naive replay" in page
    signals = sum(len(row.distances.twin) for row in perfect_fit.result.table.arms)
    assert page.count("live from live ") == signals, "a cell for each"
    assert "<script" not in page


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
@pytest.mark.usefixtures("few_blocks")
def test_one_arm_alone_can_be_left_out(
    twin_recordings: Path, twin: FittedTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fidelity_fits, "fit_recordings", lambda *_, **__: twin)
    result = measure_fidelity(
        twin_recordings, fits=Fits(generations=1), arm="none", executor=IN_THIS_PROCESS
    )
    assert [row.arm for row in result.table.arms] == ["none"]
    with pytest.raises(EvaluationError, match="one of them 'latd-grow'"):
        measure_fidelity(
            twin_recordings, fits=Fits(generations=1), arm="latd-grow", executor=IN_THIS_PROCESS
        )


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_given_twins_are_compared_with_all_arms_of_their_scenario_and_none_is_fitted(
    twin_recordings: Path, twin: FittedTwin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fidelity_fits, "fit_recordings", None)
    other = replace(twin, scenario=replace(twin.scenario, name="nginx-hogs"))
    result = measure_fidelity(twin_recordings, twins=[other, twin], executor=IN_THIS_PROCESS)
    arms = [row.arm for row in result.table.arms]
    assert arms == ["none", "static:pause=all", "static:limit=0.4"]
    assert (result.table.summary.p95_error_median or 9.0) < 0.5
    assert "Twins as they are" in page_of(result, tmp_path)
    run_few_blocks(monkeypatch)
    one = measure_fidelity(twin_recordings, twins=[twin], arm="none", executor=IN_THIS_PROCESS)
    assert [row.arm for row in one.table.arms] == ["none"], "one arm is enough"
    for twins, arm in (([other], ""), ([twin], "latd-grow")):
        with pytest.raises(EvaluationError, match="can be compared with the twins of"):
            measure_fidelity(twin_recordings, twins=twins, arm=arm, executor=IN_THIS_PROCESS)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
@pytest.mark.usefixtures("few_blocks")
def test_a_policy_is_run_only_if_it_is_the_recorded_one(
    recordings: Path, twin: FittedTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fidelity_fits, "fit_recordings", lambda *_, **__: twin)
    file = recordings / "2" / "run.json"
    for digest, is_recorded_one in (
        (file_sha256(Path(find_policy("default"))), True),
        ("0" * 64, False),
    ):
        file.write_text(
            json.dumps(json.loads(file.read_text()) | {"arm": "ppo", "policy_sha256": digest})
        )
        result = measure_fidelity(recordings, fits=Fits(generations=1), executor=IN_THIS_PROCESS)
        assert ("ppo" in [row.arm for row in result.table.arms]) == is_recorded_one
        assert list(result.table.not_run) == ([] if is_recorded_one else ["detector-anon ppo"])
        notes = [note for note in fidelity_rows(result.table)[1] if "not run" in note]
        assert len(notes) == (0 if is_recorded_one else 1), "an arm is left out without a note"
        with_twin = measure_fidelity(recordings, twins=[twin], executor=IN_THIS_PROCESS)
        assert with_twin.table.not_run == result.table.not_run


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize("replaced", ["1", "2"])
def test_recordings_of_a_policy_that_was_replaced_are_not_those_of_the_present_one(
    recordings: Path, twin: FittedTwin, replaced: str
) -> None:
    present = file_sha256(Path(find_policy("default")))
    for name in ("1", "2"):
        digest = "0" * 64 if name == replaced else present
        file = recordings / name / "run.json"
        file.write_text(
            json.dumps(json.loads(file.read_text()) | {"arm": "ppo", "policy_sha256": digest})
        )
    both = measure_fidelity(recordings, twins=[twin], arm="ppo", executor=IN_THIS_PROCESS)
    assert list(both.table.not_run) == ["detector-anon ppo"]
    shutil.rmtree(recordings / replaced)
    alone = measure_fidelity(recordings, twins=[twin], arm="ppo", executor=IN_THIS_PROCESS)
    assert [row.live_ms for row in both.table.arms] == [row.live_ms for row in alone.table.arms]
    assert list(alone.table.not_run) == []


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
@pytest.mark.usefixtures("few_blocks")
def test_a_held_out_scenario_is_run_with_the_parameters_of_others(
    recordings: Path, twin: FittedTwin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out = replace(twin, scenario=replace(twin.scenario, name="ruby-yosys"))
    runner = TwinRunner(
        twin=held_out, scenario=load_scenario("ruby-yosys"), node=node_info(tmp_path)
    )
    request = RunRequest(
        condition="together", arm=NO_ARM, slo_ms=30.0, duration_s=20.0, burn_in_s=8.0, seed=9
    )
    runner.run_block(request, recordings / "ruby-none")
    for condition in ("ample", "background"):
        runner.run_block(replace(request, condition=condition), recordings / f"ruby-{condition}")
    fitted_to: list[list[str]] = []

    def fit(paths: list[Path], **_: object) -> FittedTwin:
        fitted_to.append([path.name for path in paths])
        return twin

    monkeypatch.setattr(fidelity_fits, "fit_recordings", fit)
    result = measure_fidelity(recordings, fits=Fits(generations=1), executor=IN_THIS_PROCESS)
    assert not any("ruby-" in name for names in fitted_to for name in names)
    assert len(result.table.arms) == 3
    assert result.left_out_scenarios is not None
    (row,) = result.left_out_scenarios.arms
    assert (row.scenario, row.arm) == ("ruby-yosys", "none")
    assert (row.errors.p95 or 9.0) < 1.0, "with its own sizes, and its zone under pressure"
    assert "left out of every fit" in page_of(result, tmp_path)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_arms_measured_in_parallel_are_in_order(twin_recordings: Path) -> None:
    shares: list[float] = []
    result = measure_fidelity(
        twin_recordings,
        fits=Fits(generations=1),
        executor=LocalProcesses(2),
        report=lambda _, share: shares.append(share),
    )
    arms = [row.arm for row in result.table.arms]
    assert arms == ["none", "static:pause=all", "static:limit=0.4"]
    assert (result.table.summary.p95_error_worst or 0.0) > 0.0
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_one_arm_is_not_enough(recordings: Path, tmp_path: Path) -> None:
    only = tmp_path / "only"
    only.mkdir()
    (recordings / "0").rename(only / "0")
    with pytest.raises(EvaluationError, match="two arms"):
        measure_fidelity(only, fits=Fits(generations=1))


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
@pytest.mark.usefixtures("few_blocks")
def test_an_interrupted_measurement_is_resumed_with_the_finished_fits(
    twin_recordings: Path, twin: FittedTwin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = Fits(generations=1, directory=tmp_path / "fits")
    fitted_to: list[list[Path]] = []

    def fit(paths: list[Path], **_: object) -> FittedTwin:
        fitted_to.append(paths)
        if len(fitted_to) == 3:
            raise KeyboardInterrupt
        return twin

    monkeypatch.setattr(fidelity_fits, "fit_recordings", fit)
    with pytest.raises(KeyboardInterrupt):
        measure_fidelity(twin_recordings, fits=fits, executor=IN_THIS_PROCESS)
    kept = sorted((tmp_path / "fits").iterdir())
    assert len(kept) == 2
    kept[0].write_text("{}")
    result = measure_fidelity(twin_recordings, fits=fits, executor=IN_THIS_PROCESS)
    assert len(fitted_to) == 3 + 2, "the interrupted fit, and one that cannot be read"
    assert fitted_to[3] in fitted_to[:2]
    assert fitted_to[4] == fitted_to[2]
    fits.remove()
    assert not (tmp_path / "fits").exists(), "fits are left for another measurement"
    at_once = measure_fidelity(twin_recordings, fits=Fits(generations=1), executor=IN_THIS_PROCESS)
    assert result == at_once, "the interruption changed the result"


def test_fits_of_other_inputs_are_not_reused(
    recordings: Path, twin: FittedTwin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0

    def fit(*_: object, **__: object) -> FittedTwin:
        nonlocal count
        count += 1
        return twin

    monkeypatch.setattr(fidelity_fits, "fit_recordings", fit)
    fits = Fits(generations=1, directory=tmp_path / "fits")
    two = [recordings / "0", recordings / "1"]
    assert fits.fit([("two", two)]) == [twin]
    assert fits.fit([("two", two[::-1])]) == [twin]
    assert count == 1
    for other in (replace(fits, seed=2), replace(fits, generations=2)):
        other.fit([("two", two)])
    fits.fit([("three", [*two, recordings / "2"])])
    assert count == 4
    run = two[0] / "run.json"
    run.write_text(run.read_text() + "\n")
    fits.fit([("two", two)])
    assert count == 5, "a changed recording was not fitted again"
    monkeypatch.setattr(fidelity_fits, "_code", lambda: "another twin")
    fits.fit([("two", two)])
    assert count == 6, "a fit of an older version was reused"


def test_another_measurement_leaves_kept_fits_alone(
    twin_recordings: Path, twin: FittedTwin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fidelity_fits, "fit_recordings", lambda *_, **__: twin)
    out = tmp_path / "out"
    used_fits: list[Fits] = []

    def measure(*_: object, fits: Fits, **__: object) -> FidelityResult:
        used_fits.append(fits)
        if fits.directory is not None:
            fits.fit([("one", [twin_recordings / "0"])])
        raise KeyboardInterrupt

    monkeypatch.setattr("stallward.research.cli.fidelity.measure_fidelity", measure)
    with pytest.raises(KeyboardInterrupt):
        fidelity(twin_recordings, out=out)
    with pytest.raises(KeyboardInterrupt):
        fidelity(twin_recordings, out=out, generations=7)
    places = [fits.directory for fits in used_fits]
    assert None not in places
    assert len(set(places)) == 2, "both measurements keep their fits in one folder"
    save_fitted(tmp_path / "detector-anon.json", twin)
    with pytest.raises(KeyboardInterrupt):
        fidelity(twin_recordings, out=out, twin=[str(tmp_path / "detector-anon.json")])
    assert used_fits[-1].directory is None, "given twins need no fits, and have none to remove"


def test_signals_that_move_by_a_few_pages_are_left_out() -> None:
    ramp = np.linspace(0.0, 1.0, 500)
    live = {
        "protected memory": 64e6 * ramp,
        "protected file pages": 1e6 * ramp,
        "zone stalled": 0.1 * ramp,
        "protected stalled for memory": 0.003 * ramp,
    }
    assert set(scales_of([live])) == {"protected memory", "zone stalled"}


def test_a_level_has_a_value_a_second_however_often_it_was_read(twin_recordings: Path) -> None:
    even = load_recording(twin_recordings / "0")
    time_s, from_s, to_s = even.tick("time_s"), even.run.measured_from_s, even.run.end_s
    busy = time_s < 0.5 * (from_s + to_s)
    kept = busy | (np.arange(time_s.size) % 5 == 0)
    ticks = {**even.ticks, "zone_dirty_bytes": np.where(busy, 1.0, 0.0)}
    uneven = replace(even, ticks={name: column[kept] for name, column in ticks.items()})
    dirty = signals_of(uneven, _block(1.0))["dirty pages"]
    assert dirty.size == 20
    assert dirty.mean() == pytest.approx(0.5, abs=0.06)
