"""Contention degrees from alone and together runs, as the command prints and writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.agent.errors import StallwardError
from stallward.env.errors import SandboxError
from stallward.evaluation.cli import MISTAKE, main
from stallward.evaluation.results.serialise import save
from stallward.papers.controllers.contention import read_contention
from stallward.papers.experiments.contention import Observed, contention_of, contention_rows


def observed(response_s: float, threads: int = 2) -> Observed:
    return Observed(response_s=response_s, memory_bytes=100 << 20, threads=threads)


ALONE = [{"a": observed(1.0), "b": observed(2.0)}, {"a": observed(1.2), "b": observed(2.0)}]
TOGETHER = [{"a": observed(3.2), "b": observed(8.0)}, {"a": observed(3.4), "b": observed(8.0)}]


def test_the_highest_degree_comes_first_with_its_interval() -> None:
    result = contention_of("test", ALONE, TOGETHER)
    first, second = result.applications
    assert (first.name, second.name) == ("b", "a")
    assert first.degree.value == pytest.approx(1.5)
    assert second.degree.value == pytest.approx((3.3 / 1.1 - 1) / 2)
    assert second.degree.low is not None
    assert second.degree.high is not None
    assert second.degree.low < 1.0 < second.degree.high
    assert first.degree.low == first.degree.high, "it did not vary"


def test_one_repeat_has_no_interval() -> None:
    result = contention_of("test", ALONE[:1], TOGETHER[:1])
    assert all(one.degree.low is None for one in result.applications)
    headers, rows = contention_rows(result)
    assert dict(zip(headers, rows[0], strict=True))["degree"] == "1.500"


def test_controllers_read_what_is_written(tmp_path: Path) -> None:
    result = contention_of("test", ALONE, TOGETHER)
    save(tmp_path / "contention.json", result)
    measured = read_contention(tmp_path / "contention.json").of("a")
    assert measured is not None
    assert measured.degree == pytest.approx(1.0)
    assert measured.memory_bytes == 100 << 20


def test_an_absent_workload_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "contention", "nope"]) == MISTAKE
    assert "no scenario called 'nope'" in capsys.readouterr().err


def test_a_machine_without_a_sandbox_says_why_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_settings: object) -> None:
        raise SandboxError("The kernel refuses swap.", next_step="Run as root.")

    place = "stallward.papers.experiments.batch_session.open_sandbox"
    monkeypatch.setattr(place, refuse)
    out = tmp_path / "contention.json"
    assert main(["experiment", "contention", "case-study", "--out", str(out)]) == MISTAKE
    assert "The kernel refuses swap. Run as root." in capsys.readouterr().err
    assert not out.exists()


def test_an_application_that_did_nothing_has_no_degree() -> None:
    with pytest.raises(StallwardError, match="No contention degree"):
        contention_of("test", [{"a": observed(0.0)}], [{"a": observed(1.0)}])
