"""The oracle of a comparison is named from its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_results import arm, comparison, exactly, metrics

from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.results.comparison import ArmFacts
from stallward.evaluation.results.serialise import save
from stallward.research.oracles import oracle_of


def test_a_result_is_read_from_its_file_and_anything_else_refused(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    figures = metrics(slo_attainment=exactly(1.0), background_work=exactly(1.0))
    compared = {"a": arm(figures, ArmFacts(controller="static"))}
    save(file, comparison(compared, ample=metrics(slo_attainment=exactly(0.99))))
    assert oracle_of(file, "small").arm == "a"
    with pytest.raises(EvaluationError, match="not of 'large'"):
        oracle_of(file, "large")
    file.write_text("[]")
    with pytest.raises(EvaluationError, match="no result"):
        oracle_of(file, "small")
