"""Whether a twin ranks arms as live comparisons do: signs, ranks and errors, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from example_results import arm, comparison, exactly, figure, metrics

from stallward.env.testing import small_twin
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.evaluation.errors import EvaluationError, PlanError
from stallward.evaluation.results.comparison import ComparisonResult, Contrast
from stallward.evaluation.results.serialise import from_json, save, to_json
from stallward.research.cli.fidelity import fidelity
from stallward.research.fidelity.ranking.measure import (
    measure_ranking,
    rank_arms,
    summarise_ranking,
)
from stallward.research.fidelity.ranking.show import (
    arm_table,
    ranking_notes,
    scenario_table,
    write_ranking_page,
    wrong_table,
)
from stallward.research.fidelity.result import RankingResult
from stallward.research.fidelity.targets import load_fidelity_targets

Mode = Literal["live", "twin"]
LIVE = {"none": (100.0, 1.0), "rule": (10.0, 0.1), "ppo": (20.0, 0.4), "static": (20.5, 0.2)}
"""Label of an arm -> its p99 in ms and its background work."""


def compared(
    mode: Mode,
    figures: dict[str, tuple[float, float]],
    *,
    scenario: str = "small",
    certain_from: float = 1.1,
    fitted: bool | None = None,
) -> ComparisonResult:
    """Make a result whose differences of more than ``certain_from`` times are certain."""
    arms = {
        label: arm(metrics(p99_ms=exactly(p99), background_work=exactly(work)))
        for label, (p99, work) in figures.items()
    }

    def ratio(one: float, two: float) -> object:
        value = one / two if two else 0.0
        return figure(value, value / certain_from, value * certain_from)

    same = exactly(1.0)
    contrasts = tuple(
        Contrast(
            arm=one,
            against=two,
            mean_ratio=same,
            p50_ratio=same,
            p95_ratio=same,
            p99_ratio=ratio(figures[one][0], figures[two][0]),  # type: ignore[arg-type]
            background_work_ratio=ratio(figures[one][1], figures[two][1]),  # type: ignore[arg-type]
            slo_attainment_difference=exactly(0.0),
        )
        for one, two in combinations(figures, 2)
    )
    result = comparison(arms)
    return replace(
        result,
        mode=mode,
        scenario=scenario,
        table=replace(result.table, contrasts=contrasts),
        method=replace(result.method, twin_fitted=fitted if mode == "twin" else None),
    )


def test_a_twin_that_is_off_by_a_factor_ranks_rightly_all_the_same() -> None:
    off = {label: (3.0 * p99, 0.5 * work) for label, (p99, work) in LIVE.items()}
    one = rank_arms(compared("live", LIVE), compared("twin", off))
    assert one.p99_spearman == pytest.approx(1.0)
    assert one.work_spearman == pytest.approx(1.0)
    # Of six pairs, the p99 of ppo and static differ by less than is certain.
    assert (one.effects_right, one.effects_counted) == (11, 11)
    assert not one.wrong
    assert one.arms[0].p99_error == pytest.approx(np.log(3.0))
    assert one.arms[0].work_error == pytest.approx(np.log(2.0))


def test_only_certain_differences_count_and_wrong_ones_are_named() -> None:
    swapped = {**LIVE, "rule": LIVE["ppo"], "ppo": LIVE["rule"]}
    one = rank_arms(compared("live", LIVE), compared("twin", swapped))
    assert one.p99_spearman is not None
    assert one.p99_spearman < 0.9
    named = {(e.measure, e.arm, e.against) for e in one.wrong}
    assert ("p99", "rule", "ppo") in named
    assert ("background work", "rule", "ppo") in named
    assert one.effects_counted - one.effects_right == len(named)
    vague = rank_arms(compared("live", LIVE, certain_from=50.0), compared("twin", swapped))
    assert (vague.effects_counted, vague.wrong) == (0, ())


def test_what_the_twin_does_not_know_is_wrong() -> None:
    twin = compared("twin", {"none": (5.0, 1.0), "rule": (7.0, 0.0)})
    lost = arm(metrics(p99_ms=figure(None), background_work=figure(None)))
    twin = replace(twin, table=replace(twin.table, arms={**twin.table.arms, "none": lost}))
    one = rank_arms(compared("live", {k: LIVE[k] for k in ("none", "rule")}), twin)
    assert (one.effects_right, one.effects_counted) == (0, 2)
    assert one.p99_spearman is None, "two arms have no rank correlation"
    assert one.arms[0].p99_error == pytest.approx(np.log(10.0))


def test_errors_count_for_scenarios_that_no_fit_has_seen_only() -> None:
    off = {label: (2.0 * p99, work) for label, (p99, work) in LIVE.items()}
    rankings = {
        str(fitted): rank_arms(compared("live", LIVE), compared("twin", figures, fitted=fitted))
        for fitted, figures in ((True, off), (None, off), (False, LIVE))
    }
    assert summarise_ranking(rankings).unseen_p99_error_median == pytest.approx(0.0)
    seen = {name: one for name, one in rankings.items() if name != "False"}
    assert summarise_ranking(seen).unseen_p99_error_median is None


def test_the_targets_are_those_of_the_file(tmp_path: Path) -> None:
    targets = {t.figure: t.at_least or t.at_most for t in load_fidelity_targets().ranking}
    assert targets == {
        "rank_signs_right": 1,
        "p99_spearman_median": 0.9,
        "p99_spearman_worst": 0.7,
        "work_spearman_median": 0.9,
        "work_spearman_worst": 0.7,
        "unseen_p99_error_median": pytest.approx(np.log(1.3), abs=1e-4),
        "unseen_work_error_median": pytest.approx(np.log(1.3), abs=1e-4),
    }
    wrong = tmp_path / "targets.toml"
    wrong.write_text('targets = []\n[[ranking]]\nfigure = "p95_error_median"\nat_most = 1\n')
    with pytest.raises(PlanError, match="p95_error_median"):
        load_fidelity_targets(wrong)


def put(path: Path, result: ComparisonResult) -> Path:
    path.mkdir(parents=True)
    save(path / "result.json", result)
    return path


def test_results_are_found_below_directories_and_paired_by_scenario(tmp_path: Path) -> None:
    put(tmp_path / "live/a", compared("live", LIVE, scenario="a"))
    put(tmp_path / "live/b", compared("live", LIVE, scenario="b"))
    put(tmp_path / "twin/a", compared("twin", {**LIVE, "pi": (1.0, 1.0)}, scenario="a"))
    result = measure_ranking([tmp_path / "live", tmp_path / "twin"])
    assert list(result.scenarios) == ["a"]
    assert set(result.alone) == {"b: live only", "a pi: twin only"}
    assert result.targets["rank_signs_right"].met is True
    assert result.targets["unseen_p99_error_median"].met is None
    assert from_json(RankingResult, json.loads(json.dumps(to_json(result)))) == result
    put(tmp_path / "again", compared("twin", LIVE, scenario="a"))
    with pytest.raises(EvaluationError, match="second twin comparison of a"):
        measure_ranking([tmp_path])
    with pytest.raises(EvaluationError, match="both live and on a twin"):
        measure_ranking([tmp_path / "live"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(EvaluationError, match="no result"):
        measure_ranking([tmp_path / "empty"])


def test_the_tables_and_the_page_name_arms_figures_and_wrong_signs(tmp_path: Path) -> None:
    swapped = {**LIVE, "rule": LIVE["ppo"], "ppo": LIVE["rule"]}
    live = put(tmp_path / "live", compared("live", LIVE))
    twin = put(tmp_path / "twin", compared("twin", swapped, fitted=False))
    result = measure_ranking([live, twin / "result.json"])
    assert scenario_table(result).rows[0][:3] == ("small", "no", "4")
    assert len(arm_table(result).rows) == 4
    assert ("small", "p99", "rule", "ppo", "0.45 to 0.55", "2.00") in wrong_table(result).rows
    notes = "\n".join(ranking_notes(result))
    assert "target 1.00: missed" in notes
    write_ranking_page(result, tmp_path / "ranking.html")
    page = (tmp_path / "ranking.html").read_text()
    for words in ("Certain effects with another sign", "rule", "p99 latency", *notes.split("\n")):
        assert words in page


def test_the_command_writes_both_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live = put(tmp_path / "live", compared("live", LIVE))
    twin = put(tmp_path / "twin", compared("twin", LIVE))
    fidelity(results=[live, twin], out=tmp_path / "out")
    assert "rank correlation of p99: median 1.00 (target 0.90: met)" in capsys.readouterr().out
    assert (tmp_path / "out/ranking.html").exists()
    saved = json.loads((tmp_path / "out/ranking.json").read_text())
    assert saved["rank_signs_right"] == 1.0


def test_a_twin_with_the_parameters_of_others_has_not_seen_its_scenario() -> None:
    unseen: FittedTwin = small_twin()
    assert not unseen.saw_its_scenario
    assert replace(unseen, provenance={"recordings": ["small-none-s1"]}).saw_its_scenario
