"""A recording of the arm ``border`` is cut into its levels, and each has its own figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from invented_border import (
    DWELL_S,
    LATENCY_MS,
    SCENARIO,
    SWAP_IN_PER_S,
    WORK_PER_S,
    write_border,
)
from typer.testing import CliRunner

from stallward.agent.errors import UsageError
from stallward.env.recording.recording import load_recording
from stallward.evaluation.cli.app import app
from stallward.evaluation.errors import MeasureError
from stallward.research.border.levels import figures_of, work_ratios
from stallward.research.border.measure import BorderRequest, measure_border

REQUEST = BorderRequest(scenario=SCENARIO, levels="0+20+none", dwell_s=DWELL_S)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("border")
    write_border(folder / "run")
    return folder


def test_each_level_has_the_figures_of_its_own_time(out: Path) -> None:
    levels = figures_of(load_recording(out / "run"))
    assert [level.label for level in levels] == ["0 %", "20 %", "no limits"]
    for number, level in enumerate(levels):
        assert level.held_s == pytest.approx(DWELL_S - 15.0), "without the time to settle"
        assert level.requests == pytest.approx(50 * level.held_s, abs=2)
        assert level.p95_ms == pytest.approx(LATENCY_MS[number], rel=1e-3)
        assert level.p99_ms == pytest.approx(LATENCY_MS[number], rel=1e-3)
        assert level.work_per_s == pytest.approx(WORK_PER_S[number], rel=0.02)
        assert level.swap_in_pages_per_s == pytest.approx(SWAP_IN_PER_S[number], rel=0.02)
        assert level.held_bytes == pytest.approx(1000 + number)
    assert [level.met_ratio for level in levels] == [1.0, 1.0, 0.0]


def test_the_work_of_groups_is_a_geometric_mean_in_which_one_that_starves_is_seen(
    out: Path,
) -> None:
    levels = figures_of(load_recording(out / "run"))
    ratios = work_ratios(levels, levels[0])
    assert ratios == pytest.approx((1.0, 2.0**0.5, 0.0), rel=0.02)


def test_what_holds_no_level_long_enough_or_is_another_arm_is_refused(
    out: Path, tmp_path: Path
) -> None:
    with pytest.raises(MeasureError, match="No level was held for longer than the 30 s"):
        figures_of(load_recording(out / "run"), settle_s=30.0)
    write_border(tmp_path / "run", arm="partition")
    with pytest.raises(MeasureError, match="of partition, not of border"):
        figures_of(load_recording(tmp_path / "run"))


def test_a_run_that_is_there_is_not_made_again(out: Path) -> None:
    result = measure_border(REQUEST, out)
    written = json.loads((out / "border.json").read_text())
    assert [level["label"] for level in written["levels"]] == ["0 %", "20 %", "no limits"]
    assert written["levels"][1]["swapped_bytes"] is None, "not known"
    assert written["levels"][1]["work_ratio"] == result.work_ratios[1]
    picture = ElementTree.parse(out / "border.svg")
    words = {element.text for element in picture.iter() if element.text}
    assert {"p95", "p99", "first", "second", "0", "20", "no limits"} <= words


@pytest.mark.parametrize(
    "change",
    [
        {"scenario": "redis-sort"},
        {"levels": "0+none"},
        {"dwell_s": 30.0},
        {"rounds": 2},
        {"seed": 2},
        {"target": "tight"},
    ],
)
def test_a_run_of_another_measurement_is_refused(out: Path, change: dict[str, object]) -> None:
    other = replace(REQUEST, **change)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="run of another measurement: border:dwell_s=25"):
        measure_border(other, out)


def test_the_command_prints_a_row_for_each_level(out: Path) -> None:
    words = ["border", SCENARIO, "--levels", "0+20+none", "--dwell-seconds", "25"]
    done = CliRunner().invoke(app, [*words, "--out", str(out)])
    assert done.exit_code == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["0", "%", "2.00", "2.00", "100", "%", "1.00"] in [row[:7] for row in rows]
    assert ["no", "limits", "40.00", "40.00", "0", "%", "0.00"] in [row[:7] for row in rows]
