"""The oracle of a comparison, and its name from a file of results."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_results import arm, comparison, exactly, metrics

from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.results.comparison import ArmFacts, ComparisonResult
from stallward.evaluation.results.serialise import save
from stallward.research.hindsight import Hindsight, best_meeting_target, oracle_of


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


def result(**arms: tuple[str, float, float | None]) -> ComparisonResult:
    """The result of a comparison; label -> (controller, attainment, background work)."""
    return comparison(
        {
            label: arm(
                metrics(slo_attainment=exactly(kept), background_work=exactly(work)),
                ArmFacts(controller=controller),
            )
            for label, (controller, kept, work) in arms.items()
        },
        ample=metrics(slo_attainment=exactly(0.99)),
    )


def test_the_oracle_is_the_static_arm_with_the_most_work_that_keeps_the_target() -> None:
    arms = {
        "a": ("static:limit=0.8", 0.95, 0.9),
        "b": ("static:limit=0.6", 0.986, 0.7),
        "c": ("static:limit=0.4", 0.99, 0.6),
        "d": ("static:pause=0", 0.99, None),
        "e": ("ppo", 1.0, 1.0),
    }
    assert best_meeting_target(result(**arms)) == Hindsight(arm="b", meets_target=True)
    missing = best_meeting_target(result(a=arms["a"], e=arms["e"]))
    assert missing == Hindsight(arm="a", meets_target=False)
    with pytest.raises(EvaluationError, match="No static arm"):
        best_meeting_target(result(e=arms["e"]))
