"""What an experiment on many nodes showed, and how it is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from stallward.actuator.experiments.block_tally import BlockResult, Loss
from stallward.actuator.experiments.plan import Arm, Candidate, ExperimentPlan, PrimaryMeasure
from stallward.actuator.experiments.state import Progress
from stallward.actuator.experiments.wire import Experiment
from stallward.evaluation.errors import MeasureError
from stallward.fleet.cli.experiments_text import (
    node_rows,
    progress_line,
    report_lines,
    report_rows,
)
from stallward.fleet.experiment_plan import FleetPlan
from stallward.fleet.experiment_report import report_on_fleet

NEW, OTHER = (Candidate(policy=f"/policies/{name}.onnx") for name in ("new", "other"))
PLAN = ExperimentPlan(
    baseline=Candidate(), treatment=NEW, pairs=10, block_s=60.0, burn_in_s=10.0, seed=3
)
Effect = Callable[[str], float]


def fleet(
    effect: Effect,
    treatments: tuple[Candidate, ...] = (NEW,),
    *,
    count: int = 12,
    lost: Callable[[int, Arm], bool] = lambda _number, _arm: False,
) -> dict[str, Experiment]:
    """Nodes that ran all their pairs; ``effect`` is the ratio of the treatment on a node."""
    rng = np.random.default_rng(4)
    plans = FleetPlan(plan=PLAN, treatments=treatments, seed=3).for_nodes(
        f"n{k}" for k in range(count)
    )
    part = {}
    for name, plan in plans.items():
        blocks = []
        for number in range(plan.blocks):
            arm = plan.arm_of(number)
            p95_ms = rng.lognormal(3.0, 0.1) * (effect(name) if arm is Arm.TREATMENT else 1.0)
            loss = Loss.LEASE if lost(number, arm) else Loss.NONE
            kept = loss is Loss.NONE
            blocks.append(
                BlockResult(
                    pair=number // 2,
                    arm=arm,
                    began_s=0.0,
                    loss=loss,
                    seconds=60 if kept else 0,
                    attainment=0.9 if kept else None,
                    p95_ms=p95_ms if kept else None,
                    worst_ms=rng.lognormal(4.0, 0.1) if kept else None,
                    background_cores=0.5 if kept else None,
                )
            )
        sha256 = plan.treatment.policy.ljust(64, "0")
        part[name] = Experiment(
            plan=replace(plan, treatment=replace(plan.treatment, sha256=sha256)),
            progress=Progress.COMPLETE,
            began_s=0.0,
            ended_s=1400.0,
            blocks=tuple(blocks),
            phase=None,
        )
    return part


def text_of(part: dict[str, Experiment]) -> str:
    return "\n".join(report_lines(report_on_fleet(part), {}))


@pytest.mark.parametrize("idle", [False, True])
def test_work_of_which_an_arm_did_none_in_a_block_is_not_significant(*, idle: bool) -> None:
    rng, part = np.random.default_rng(5), fleet(lambda _: 1.0)
    for name, one in part.items():
        blocks = [
            replace(block, background_cores=0.5 + 0.1 * block.arm + rng.normal(0.0, 0.01))
            for block in one.blocks
        ]
        if idle and name == "n1":
            blocks = [
                replace(block, background_cores=0.0) if block.arm and block.pair == 0 else block
                for block in blocks
            ]
        part[name] = replace(one, blocks=tuple(blocks))
    (report,) = report_on_fleet(part).treatments
    assert report.significant[PrimaryMeasure.WORK] is not idle


def test_an_effect_on_all_nodes_is_found_and_said() -> None:
    part = fleet(lambda _: 0.8)
    report = report_on_fleet(part)
    (one,) = report.treatments
    ratio = one.ratios[PrimaryMeasure.P95]
    assert report.is_final
    assert ratio.ratio.value == pytest.approx(0.8, rel=0.05)
    assert ratio.ratio.excludes(1.0)
    assert (ratio.nodes, ratio.pairs) == (12, 120)
    assert one.significant[PrimaryMeasure.P95]
    assert not one.significant[PrimaryMeasure.WORST]
    lines = report_lines(report, {"far": "it does not answer"})
    assert lines[0] == "far is left out: it does not answer"
    assert "The nodes do not certainly differ in the effect" in "\n".join(lines)
    assert lines[-1].startswith("With the treatment the typical p95 of a second is 19 %")
    assert lines[-1].endswith("% shorter.")
    assert report_rows(report)[0][0] == "new.onnx: typical p95 of a second (primary)"
    assert len(node_rows(report)) == 12
    assert progress_line(part) == "12 nodes: 12 complete; seed 3"


def test_an_effect_on_some_nodes_is_certain_for_these_nodes_only() -> None:
    """One node in four gains much, and the others nothing: the next node may be any."""
    gains = {"n0", "n4", "n8"}
    text = text_of(fleet(lambda name: 0.4 if name in gains else 1.0))
    assert "The nodes differ in the effect (p 0.000)" in text
    assert "That is certain for these nodes only." in text


def test_no_effect_is_not_claimed() -> None:
    report = report_on_fleet(fleet(lambda _: 1.0))
    assert not any(report.treatments[0].significant.values())
    assert "do not certainly differ in the primary measure" in text_of(fleet(lambda _: 1.0))


def test_treatments_are_judged_apart_and_corrected_together() -> None:
    """What is just significant by itself is not, where another one was tried and failed."""
    alone = fleet(lambda _: 0.926, count=6)
    (one,) = report_on_fleet(alone).treatments
    p_value = one.ratios[PrimaryMeasure.P95].p_value
    assert p_value is not None
    assert 0.025 < p_value <= 0.05
    assert one.significant[PrimaryMeasure.P95]
    nothing = {
        f"m{name}": replace(
            node, plan=replace(node.plan, treatment=replace(OTHER, sha256="ff" * 32))
        )
        for name, node in fleet(lambda _: 1.0, count=6).items()
    }
    both = report_on_fleet(alone | nothing)
    assert [one.treatment.policy for one in both.treatments] == [NEW.policy, OTHER.policy]
    assert not any(one.significant[PrimaryMeasure.P95] for one in both.treatments)


def test_nodes_that_broke_their_guardrail_are_named_and_stay_in() -> None:
    part = fleet(lambda name: 2.0 if name == "n5" else 0.9)
    part["n5"] = replace(part["n5"], progress=Progress.GUARDRAIL, blocks=part["n5"].blocks[:4])
    report = report_on_fleet(part)
    assert report.broken == ("n5",)
    assert report.is_final
    assert report.treatments[0].ratios[PrimaryMeasure.P95].nodes == 12
    assert any(line.startswith("n5 stopped because") for line in report_lines(report, {}))


def test_while_one_runs_or_if_somebody_stopped_it_the_p_value_does_not_decide() -> None:
    part = fleet(lambda _: 0.926, count=6)
    for progress in (Progress.RUNNING, Progress.STOPPED):
        report = report_on_fleet(part | {"n0": replace(part["n0"], progress=progress)})
        assert not report.is_final
        assert not report.treatments[0].significant[PrimaryMeasure.P95]
    clear = fleet(lambda _: 0.7)
    looked = report_on_fleet(clear | {"n0": replace(clear["n0"], progress=Progress.RUNNING)})
    assert looked.running == 1
    assert looked.treatments[0].significant[PrimaryMeasure.P95]


def test_an_arm_that_loses_blocks_is_noticed_and_a_node_that_loses_both_is_not() -> None:
    uneven = fleet(lambda _: 0.8, lost=lambda number, arm: number < 6 and arm is Arm.TREATMENT)
    assert report_on_fleet(uneven).treatments[0].losses_differ
    assert "The arms lose blocks at different rates" in text_of(uneven)
    both = fleet(lambda _: 0.8, lost=lambda number, _arm: number < 8)
    assert not report_on_fleet(both).treatments[0].losses_differ


def test_without_a_pair_or_a_node_that_is_said() -> None:
    empty = {name: replace(one, blocks=()) for name, one in fleet(lambda _: 1.0).items()}
    assert text_of(empty) == "new.onnx: no pair of blocks is known yet."
    with pytest.raises(MeasureError, match="No node takes part"):
        report_on_fleet({})
