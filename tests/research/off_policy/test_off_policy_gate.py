"""``stallward ope`` judges candidates on shipped recordings."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stallward.env.catalogue.add import add_recordings
from stallward.evaluation.cli import main
from stallward.models import registry
from stallward.research.off_policy import gate as logged

RECORDINGS = str(Path(__file__).parents[3] / "recordings")


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_candidate_that_looks_worse_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ope", RECORDINGS, "--scenario", "detector-anon", "--json"]
    arguments += ["--arms", "none,rule#2", "--reference", "rule"]
    code = main([*arguments, "--least-seconds", "50"])
    result = json.loads(capsys.readouterr().out)
    verdicts = {one["arm"]: one for one in result["candidates"]}
    assert code == 1
    assert result["refused"] == ["none"]
    assert verdicts["none"]["difference"]["high"] < 0.0
    assert verdicts["rule"]["difference"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert result["logged"]["detector-anon"]["recordings"] == [
        "detector-anon-excite-dwell-s-12-pause-0.2-s1",
        "detector-anon-excite-s1",
    ]


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_candidate_that_cannot_be_judged_is_unknown_and_passes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["ope", RECORDINGS, "--scenario", "detector-anon"]
    arguments += ["--arms", "none,rule#2", "--reference", "rule", "--least-seconds", "1000"]
    assert main(arguments) == 0, "four minutes gave a verdict"
    text = capsys.readouterr().out
    assert text.count("unknown") >= 2
    assert "fitted Q" in text


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_recordings_are_used_unless_they_are_held_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(tmp_path, "postgres-hogs-excite-s1")
    held_out = copied(tmp_path, "redis-sort-excite-s1") / "run.json"
    made_with = json.loads(held_out.read_text())
    assert made_with["scenario_parameters"]["application"] == "redis"
    made_with["scenario_parameters"]["application"] = "varnish"
    held_out.write_text(json.dumps(made_with))
    arguments = ["ope", str(tmp_path), "--arms", "rule", "--json"]
    main(arguments)
    result = json.loads(capsys.readouterr().out)
    assert result["held_out"] == ["redis-sort"]
    assert {one["scenario"] for one in result["candidates"]} == {"postgres-hogs"}
    assert result["logged"]["postgres-hogs"]["seconds"] == pytest.approx(120.0, abs=1.0)
    shutil.rmtree(tmp_path / "postgres-hogs-excite-s1")
    assert main(arguments) != 0
    assert "held out: redis-sort" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_without_a_twin_the_speeds_come_from_the_recordings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"memcached-gcc-{what}-s1" for what in ("excite", "background", "alone")]
    for name in names:
        copied(tmp_path, name)
    arguments = ["ope", str(tmp_path), "--arms", "rule", "--json"]
    main(arguments)
    with_twin = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(logged, "twin_names", lambda: ())
    monkeypatch.setattr(registry, "twin_names", lambda: ())
    assert main(arguments) != 0, "the speeds are known from nowhere"
    assert "no fitted twin 'memcached-gcc'" in capsys.readouterr().err
    copied(tmp_path, "memcached-gcc-ample-s1")
    main(arguments)
    without = json.loads(capsys.readouterr().out)
    assert without == with_twin, "a fit estimates the same speeds from them"


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_random_actions_of_another_kind_are_not_judged_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(tmp_path, "postgres-hogs-excite-s1")
    other = copied(tmp_path, "postgres-hogs-excite-dwell-s-12-pause-0.2-s1") / "actions.parquet"
    table = pq.read_table(other)
    six = pa.array(["0,1,2,0,3,1"] * len(table), pa.string())
    index = table.schema.get_field_index("action")
    pq.write_table(table.set_column(index, "action", six), other)
    main(["ope", str(tmp_path), "--arms", "rule", "--json"])
    judged_by = json.loads(capsys.readouterr().out)["logged"]["postgres-hogs"]
    assert judged_by["recordings"] == ["postgres-hogs-excite-s1"]
    assert judged_by["seconds"] == pytest.approx(120.0, abs=1.0), "its time counts for a verdict"


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_catalogue_is_judged_by_like_its_directories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, catalogue = tmp_path / "recordings", str(tmp_path / "catalogue")
    names = ("postgres-hogs-excite-s1", "postgres-hogs-none-s1", "redis-sort-excite-s1")
    paths = [copied(folder, name) for name in names]
    add_recordings(paths, catalogue, node="edge-7", day=date(2026, 11, 20))
    arguments = ["--arms", "rule", "--json", "--scenario", "postgres-hogs"]
    main(["ope", str(folder), *arguments])
    of_directories = json.loads(capsys.readouterr().out)
    main(["ope", catalogue, *arguments, "--node", "edge-7", "--days", "2026-11-20"])
    assert json.loads(capsys.readouterr().out) == of_directories
    assert of_directories["logged"]["postgres-hogs"]["recordings"] == [names[0]]
    assert main(["ope", catalogue, *arguments, "--days", "..2026-11-19"]) == 2
    assert main(["ope", catalogue, *arguments, "--recorded-arm", "none"]) == 2
    assert "No recording" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_more_recordings_than_are_wanted_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("postgres-hogs-excite-s1", "postgres-hogs-excite-dwell-s-12-pause-0.2-s1"):
        copied(tmp_path, name)
    main(["ope", str(tmp_path), "--arms", "rule", "--json", "--most", "1"])
    result = json.loads(capsys.readouterr().out)
    assert result["not_used"] == 1
    assert len(result["logged"]["postgres-hogs"]["recordings"]) == 1


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_scenario_with_too_short_recordings_does_not_keep_the_others_from_a_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(tmp_path, "postgres-hogs-excite-s1")
    short = copied(tmp_path, "memcached-gcc-excite-s1") / "run.json"
    run = json.loads(short.read_text())
    run["end_s"] = run["start_s"] + run["burn_in_s"] + 20.0
    short.write_text(json.dumps(run))
    arguments = ["ope", str(tmp_path), "--arms", "rule", "--json"]
    assert main(arguments) in {0, 1}
    result = json.loads(capsys.readouterr().out)
    assert {one["scenario"] for one in result["candidates"]} == {"postgres-hogs"}
    assert "fewer than 300" in result["too_short"]["memcached-gcc"]
    shutil.rmtree(tmp_path / "postgres-hogs-excite-s1")
    assert main(arguments) == 2
    assert "fewer than 300" in capsys.readouterr().err


def copied(folder: Path, name: str) -> Path:
    """A copy of a shipped recording in a folder."""
    return Path(shutil.copytree(Path(RECORDINGS) / name, folder / name))
