"""Tests of the problem of an unusable decision, as a value and in words."""

from __future__ import annotations

import math
from typing import Any

import pytest

from stallward.actuator.guard.expressible import unusable
from stallward.actuator.guard.problem import Expected, Flaw, Problem
from stallward.actuator.record.problem_text import problem_text
from stallward.actuator.record.reasons import DecisionUnfit, Fault, Reasons
from stallward.actuator.record.reasons_text import reason_notes
from stallward.agent.controller import Decision
from stallward.agent.desired import DesiredState, ProcessRef, SlotDesire, Tuning
from stallward.agent.file_pages import FilePages

HOG = ProcessRef(pid=100, start_time_ticks=7)


@pytest.mark.parametrize(
    ("decision", "flaw", "expected", "says"),
    [
        (None, Flaw.WRONG_TYPE, Expected.DECISION, "a NoneType is no decision"),
        (
            Decision(desired=3),  # type: ignore[arg-type]
            Flaw.WRONG_TYPE, Expected.DESIRED_STATE, "a int is no desired state",
        ),
        (
            Decision(desired=DesiredState(slots=(None,))),  # type: ignore[arg-type]
            Flaw.WRONG_TYPE, Expected.SLOT_DESIRE, "a NoneType is no desire for a slot (slot 0)",
        ),
        (
            Decision(desired=DesiredState(tuning=None)),  # type: ignore[arg-type]
            Flaw.WRONG_TYPE, Expected.TUNING, "a NoneType is no tuning",
        ),
        (
            Decision(desired=DesiredState(stopped=(7,))),  # type: ignore[arg-type]
            Flaw.WRONG_TYPE, Expected.PROCESS, "7 is no process",
        ),
        (
            Decision(desired=DesiredState(slots=[])),  # type: ignore[arg-type]
            Flaw.WRONG_TYPE, Expected.TUPLE, "slots is a list, not a tuple",
        ),
        (
            Decision(desired=DesiredState(slots=(SlotDesire(cpus=(0,) * 8193),))),
            Flaw.WRONG_TYPE, Expected.CPU_LIST, "cpus is no tuple of at most 8192 CPUs (slot 0)",
        ),
        (
            Decision(desired=DesiredState(stopped=(HOG,) * 4097)),
            Flaw.WRONG_TYPE, Expected.PROCESS_LIST,
            "stopped is no tuple of at most 4096 processes",
        ),
        (
            Decision(desired=DesiredState(slots=(SlotDesire(limit_bytes=True),))),
            Flaw.WRONG_TYPE, Expected.INTEGER, "limit_bytes is True, not an integer (slot 0)",
        ),
        (
            Decision(desired=DesiredState(), score="x"),  # type: ignore[arg-type]
            Flaw.WRONG_TYPE, Expected.NUMBER, "score is 'x', not a number",
        ),
        (
            Decision(desired=DesiredState(protect_from_oom=1)),  # type: ignore[arg-type]
            Flaw.WRONG_TYPE, Expected.FLAG, "protect_from_oom is 1, not true or false",
        ),
        (
            Decision(desired=DesiredState(), reason=None),  # type: ignore[arg-type]
            Flaw.WRONG_TYPE, Expected.TEXT, "reason is not a text",
        ),
        (
            Decision(desired=DesiredState(tuning=Tuning(name="\n"))),
            Flaw.WRONG_TYPE, Expected.SHORT_TEXT,
            "the tuning's name is not a short printable text",
        ),
        (
            Decision(desired=DesiredState(slots=(SlotDesire(page_advice="free"),))),  # type: ignore[arg-type]
            Flaw.WRONG_TYPE, Expected.PAGE_ADVICE, "page_advice is 'free' (slot 0)",
        ),
        (
            Decision(desired=DesiredState(file_pages=FilePages(action="free", victim="next"))),  # type: ignore[arg-type]
            Flaw.WRONG_TYPE, Expected.FILE_PAGES, "file_pages.action is 'free'",
        ),
        (
            Decision(
                desired=DesiredState(
                    file_pages=FilePages(action="cold", victim="next", grab_pages=17)
                )
            ),
            Flaw.WRONG_TYPE, Expected.FILE_PAGES, "file_pages.grab_pages is 17",
        ),
        (
            Decision(
                desired=DesiredState(file_pages=FilePages(action="cold", victim="protected"))
            ),
            Flaw.WRONG_TYPE, Expected.FILE_PAGES,
            "file_pages is cold of the protected application",
        ),
        (
            Decision(desired=DesiredState(slots=(SlotDesire(limit_bytes=0),))),
            Flaw.OUT_OF_RANGE, Expected.NOTHING_ELSE,
            "limit_bytes is 0, outside 1..4611686018427387904 (slot 0)",
        ),
        (
            Decision(desired=DesiredState(slots=(SlotDesire(nice=20),))),
            Flaw.OUT_OF_RANGE, Expected.NOTHING_ELSE, "nice is 20, outside -20..19 (slot 0)",
        ),
        (
            Decision(desired=DesiredState(), score=-0.5),
            Flaw.OUT_OF_RANGE, Expected.NOTHING_ELSE, "score is -0.5, outside 0..inf",
        ),
        (
            Decision(desired=DesiredState(slots=(SlotDesire(cpu_max_cores=0),))),
            Flaw.OUT_OF_RANGE, Expected.NOTHING_ELSE, "cpu_max_cores is 0 (slot 0)",
        ),
        (
            Decision(desired=DesiredState(), propensity=math.nan),
            Flaw.NOT_FINITE, Expected.NOTHING_ELSE, "propensity is nan, not finite",
        ),
        (
            Decision(desired=DesiredState(slots=(SlotDesire(),) * 3)),
            Flaw.TOO_MANY_SLOTS, Expected.NOTHING_ELSE, "3 slots desired, the node has 2",
        ),
        (
            Decision(desired=DesiredState(), action=(None,)),  # type: ignore[arg-type]
            Flaw.EMPTY_ENTRY, Expected.NOTHING_ELSE, "action holds None",
        ),
    ],
)  # fmt: skip
def test_every_flaw_of_a_decision_names_itself(
    decision: Any, flaw: Flaw, expected: Expected, says: str
) -> None:
    problem = unusable(decision, 2)
    assert problem is not None
    assert (problem.flaw, problem.expected) == (flaw, expected)
    assert problem_text(problem) == says


def test_a_problem_names_its_slot_where_the_names_are_known() -> None:
    problem = Problem(flaw=Flaw.NOT_FINITE, field="cpu_max_cores", value="nan", slot=1)
    says = "cpu_max_cores is nan, not finite (slot "
    assert problem_text(problem, ("web", "batch")) == f"{says}batch)"
    assert problem_text(problem, ("web",)) == f"{says}1)"
    reasons = Reasons(fault=Fault(controller="rule", cause=DecisionUnfit(problem=problem)))
    (note,) = reason_notes(reasons, ("web", "batch"))
    assert note.endswith("(slot batch)")
