"""What the experiments on swap assignment run, and in which order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from stallward.agent.registry import make_controller
from stallward.papers.controllers.direct_swap import required_swap
from stallward.papers.experiments.swap.configurations import (
    CASE_STUDY,
    LARGER,
    MIB,
    find_configuration,
    larger,
)
from stallward.papers.experiments.swap.steps import (
    ALPHA_ARMS,
    ARMS,
    Step,
    alone_slots,
    plan_steps,
    stands_for,
)


def test_the_case_study_needs_nine_eighths_of_the_memory() -> None:
    assert len(CASE_STUDY.programs) == 3
    assert CASE_STUDY.needed_bytes / CASE_STUDY.zone_bytes == 9 / 8


def test_the_larger_experiment_has_every_setting_of_the_document() -> None:
    assert len(LARGER) == 24
    for one in LARGER:
        assert len(one.programs) == 4
        assert (one.needed_bytes, one.zone_bytes) == (320 * MIB, 240 * MIB)
    subtasks = {one.programs[0].subtasks for one in LARGER}
    assert subtasks == {5, 7, 9, 11, 128, 256}
    memory = [program.mib for program in larger(5, "different", "low").programs]
    assert required_swap(memory, 240) == 80


def test_applications_that_are_alike_run_alone_once() -> None:
    same, different = larger(5, "same", "low"), larger(5, "different", "low")
    assert alone_slots(same) == (0,)
    assert stands_for(same, 3) == 0
    assert alone_slots(different) == (0, 1, 2, 3)
    assert alone_slots(CASE_STUDY) == (0, 2)
    assert [stands_for(CASE_STUDY, slot) for slot in range(3)] == [0, 0, 2]


def test_degrees_come_first_and_every_repeat_has_every_arm_once() -> None:
    steps = plan_steps((CASE_STUDY,), ARMS, repeats=3, seed=1)
    first = steps[: len(steps) - 3 * len(ARMS)]
    assert all(step.repeat == 0 or step.slot is not None for step in first)
    assert len({step.key for step in steps}) == len(steps)
    for repeat in (1, 2, 3):
        arms = Counter(step.arm for step in steps if step.repeat == repeat and step.slot is None)
        assert arms == Counter(list(ARMS))
    orders = [[s.arm for s in steps[-n * len(ARMS) :][: len(ARMS)]] for n in (1, 2, 3)]
    assert orders[0] != orders[1] or orders[1] != orders[2], "the order is drawn"


def test_a_longer_plan_begins_with_a_shorter_one() -> None:
    short, longer = (plan_steps(LARGER[:2], ARMS, repeats, 7) for repeats in (1, 3))
    assert longer[: len(short)] == short


@pytest.mark.parametrize("arm", ARMS | ALPHA_ARMS)
def test_every_arm_is_a_controller(arm: str, tmp_path: Path) -> None:
    path = tmp_path / "contention.json"
    path.write_text('{"applications": []}')
    step = Step(configuration=CASE_STUDY, arm=arm)
    make_controller(step.controller(path).spec)


def test_a_configuration_is_found_by_its_name() -> None:
    assert find_configuration("case-study") is CASE_STUDY
    zipf = find_configuration("case-study-zipf")
    assert zipf is not None
    assert {program.order for program in zipf.programs} == {"zipf"}
    assert find_configuration("same-low-5") is LARGER[0]
    assert find_configuration("detector-anon") is None
