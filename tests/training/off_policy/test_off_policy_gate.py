"""``stallward ope`` judges candidates on shipped recordings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from stallward.evaluation.cli import main

RECORDINGS = str(Path(__file__).parents[3] / "recordings")


@pytest.mark.slow
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

    assert main([*arguments, "--least-seconds", "1000"]) == 0, "four minutes gave a verdict"
    result = json.loads(capsys.readouterr().out)
    assert {one["verdict"] for one in result["candidates"]} == {"unknown"}


@pytest.mark.slow
def test_a_candidate_that_cannot_be_judged_is_unknown_and_passes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["ope", RECORDINGS, "--scenario", "detector-anon", "--arms", "rule"]) == 0
    text = capsys.readouterr().out
    assert "unknown" in text
    assert "fitted Q" in text


def test_recordings_are_used_unless_they_are_held_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("postgres-hogs-excite-s1", "redis-sort-excite-s1"):
        shutil.copytree(Path(RECORDINGS) / name, tmp_path / name)
    arguments = ["ope", str(tmp_path), "--arms", "rule", "--json"]
    main(arguments)
    result = json.loads(capsys.readouterr().out)
    assert result["held_out"] == ["redis-sort"]
    assert {one["scenario"] for one in result["candidates"]} == {"postgres-hogs"}
    assert result["logged"]["postgres-hogs"]["seconds"] == pytest.approx(120.0, abs=1.0)
    shutil.rmtree(tmp_path / "postgres-hogs-excite-s1")
    assert main(arguments) != 0
    assert "held out: redis-sort" in capsys.readouterr().err
