"""Results are written and read back by one serialiser; files of earlier versions open."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from example_results import arm, comparison, exactly, metrics
from hypothesis import given
from hypothesis import strategies as st

from stallward.agent.schema.marks import Flat, Omitted
from stallward.evaluation.errors import EvaluationError, ResultError
from stallward.evaluation.results.comparison import ComparisonResult, load_result
from stallward.evaluation.results.interval import Interval
from stallward.evaluation.results.serialise import from_json, load, load_if_there, save, to_json
from stallward.research.fidelity.result import FidelityResult
from stallward.research.verdict.result import JudgedFigure, Verdict

FILES: dict[str, type] = {
    "result.json": ComparisonResult,
    "verdict.json": Verdict,
    "fidelity.json": FidelityResult,
}


@pytest.fixture
def samples(request: pytest.FixtureRequest) -> Path:
    """Files written by the version before the serialiser."""
    return request.config.rootpath / "tests" / "fuzz" / "samples"


@pytest.mark.parametrize("name", FILES)
def test_files_of_the_last_version_are_written_unchanged(
    samples: Path, tmp_path: Path, name: str
) -> None:
    value: object = load(FILES[name], samples / name)
    save(tmp_path / name, value)
    assert (tmp_path / name).read_text() == (samples / name).read_text()


def test_a_result_without_later_keys_opens(samples: Path) -> None:
    whole = json.loads((samples / "result.json").read_text())
    for key in ("slo_quantile", "other_nodes", "contrasts"):
        del whole[key]
    for key in (
        "spread",
        "terminated_processes",
        "limit_kills",
        "stolen_share_worst",
        "fallback_share_worst",
    ):
        del whole["arms"]["latd"][key]
    del whole["node"]["disk"]
    del whole["method"]["files_sha256"]
    old = from_json(ComparisonResult, whole | {"added by a later version": 1})
    latd = old.table.arms["latd"]
    assert (old.table.slo_quantile, old.table.contrasts, old.other_nodes) == (0.95, (), ())
    assert (latd.facts.terminated_processes, latd.facts.stolen_share_worst) == (0, 0.0)
    assert latd.spread.impact_ample_p99_sd is None


def test_a_verdict_without_later_keys_opens(samples: Path) -> None:
    whole = json.loads((samples / "verdict.json").read_text())
    for key in ("nodes", "run", "spoiled_blocks", "ended_programs", "stolen_share_worst"):
        del whole["scenarios"]["detector-anon"][key]
    del whole["failed"]
    for figure in whole["arms"]["ppo"].values():
        del figure["surely"]
    old = from_json(Verdict, whole)
    assert old.scenarios["detector-anon"].nodes == 1
    assert old.scenarios["detector-anon"].run.node is None
    assert old.arms["ppo"]["score"].surely is None


def damaged(samples: Path, path: str, value: object) -> dict[str, Any]:
    """The sample result with another value at a dotted path."""
    whole: dict[str, Any] = json.loads((samples / "result.json").read_text())
    *parents, last = path.split("/")
    place = whole
    for key in parents:
        place = place[key]
    place[last] = value
    return whole


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("arms/none/p95_ms/value", "fast", r"arms.none.p95_ms.value is 'fast', not a number"),
        ("arms/none/blocks", True, r"arms.none.blocks is True, not a whole number"),
        ("arms/none/blocks", 1.5, r"arms.none.blocks is 1.5, not a whole number"),
        ("mode", "dream", r"mode is 'dream'. Choose one of: 'live', 'twin'"),
        ("contrasts", {}, r"contrasts is \{\}, not a list"),
        ("arms", [], r"arms is \[\], not a table"),
        ("slo_ms", None, r"slo_ms is None, not a number but null"),
        ("slo_ms", float("inf"), r"slo_ms is inf, not a finite number"),
        ("slo_ms", 10**400, r"slo_ms does not fit into 64 bits"),
        ("method/units", ["one"], r"method.units are 1, but there are 2 groups"),
    ],
)
def test_a_damaged_result_is_refused_with_the_name_of_the_key(
    samples: Path, path: str, value: object, message: str
) -> None:
    with pytest.raises(ResultError, match=message):
        from_json(ComparisonResult, damaged(samples, path, value))


def test_a_missing_key_is_named(samples: Path) -> None:
    whole = json.loads((samples / "result.json").read_text())
    del whole["arms"]["none"]["paused_share"]
    with pytest.raises(ResultError, match=r"arms.none.paused_share is missing"):
        from_json(ComparisonResult, whole)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON"),
        ('{"schema": 1', "no JSON"),
        ("[]", r"is \[\], not a table but a list"),
        ('{"slo_ms": NaN}', "NaN is no number of JSON"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_files_with_other_content_are_refused_and_named(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "result.json"
    file.write_text(text)
    with pytest.raises(ResultError, match=message) as raised:
        load(ComparisonResult, file)
    assert str(file) in str(raised.value)
    assert load_if_there(ComparisonResult, file) is None


def test_a_directory_without_a_result_is_refused_with_a_next_step(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="stallward compare"):
        load_result(tmp_path)
    with pytest.raises(ResultError, match="cannot be read"):
        load(ComparisonResult, tmp_path / "result.json")


def test_a_value_that_json_cannot_hold_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    save(file, comparison({}))
    before = file.read_text()
    broken = comparison({"none": arm(metrics(p95_ms=exactly(math.inf)))})
    with pytest.raises(ValueError, match="JSON"):
        save(file, broken)
    assert file.read_text() == before


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
intervals = st.builds(
    Interval, value=st.none() | numbers, low=st.none() | numbers, high=st.none() | numbers
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    """Every kind of field that results have."""

    judged: Flat[JudgedFigure]
    mode: Literal["live", "twin"]
    name: str
    note: Omitted[str] = None
    count: int = 0
    many: tuple[Interval, ...] = ()
    named: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    maybe: Interval | None = None


figures = st.builds(
    JudgedFigure,
    interval=intervals,
    worst=st.none() | numbers,
    beyond=st.booleans(),
    left_out_scenarios=st.integers(0, 9),
    target=st.text(),
    met=st.none() | st.booleans(),
    surely=st.none() | st.booleans(),
)
values = st.builds(
    Everything,
    judged=figures,
    mode=st.sampled_from(["live", "twin"]),
    name=st.text() | st.just("\0\udc80"),
    note=st.none() | st.text(),
    count=st.integers(-(2**63), 2**63 - 1),
    many=st.lists(intervals).map(tuple),
    named=st.dictionaries(st.text(), st.dictionaries(st.text(), numbers)),
    maybe=st.none() | intervals,
)


@given(values)
def test_every_written_value_is_read_back(value: Everything) -> None:
    text = json.dumps(to_json(value), allow_nan=False)
    assert from_json(Everything, json.loads(text)) == value


@given(values)
def test_flat_fields_stand_beside_the_others_and_omitted_ones_are_absent(
    value: Everything,
) -> None:
    written = to_json(value)
    assert "judged" not in written
    assert {"value", "low", "high", "met", "mode"} <= set(written)
    assert ("note" in written) == (value.note is not None)
