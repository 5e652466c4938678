"""Makes the sentence about a desired state or a decision that cannot be used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from stallward.actuator.guard.problem import Expected, Flaw, Problem

UNKNOWN: Final = "this version does not know why"


def problem_text(problem: Problem, names: Sequence[str] = ()) -> str:
    """Return what is wrong with a desired state or a decision.

    Args:
        problem: What is wrong.
        names: The slots' names; a slot without one goes by its number.
    """
    flaw, slot = _flaw_text(problem), problem.slot
    if slot is None:
        return flaw
    return f"{flaw} (slot {names[slot] if 0 <= slot < len(names) else slot})"


def _flaw_text(problem: Problem) -> str:
    if problem.flaw is Flaw.WRONG_TYPE:
        template = _WRONG_TYPE[problem.expected]
    elif problem.flaw is Flaw.OUT_OF_RANGE and problem.low is None:
        template = "{field} is {value}"
    else:
        template = _FLAWS[problem.flaw]
    return template.format(
        field=problem.field,
        value=problem.value,
        low=_exact(problem.low),
        high=_exact(problem.high),
    )


_FLAWS: Final = {
    Flaw.OUT_OF_RANGE: "{field} is {value}, outside {low}..{high}",
    Flaw.NOT_FINITE: "{field} is {value}, not finite",
    Flaw.TOO_MANY_SLOTS: "{value} slots desired, the node has {high}",
    Flaw.EMPTY_ENTRY: "{field} holds None",
    Flaw.OTHER: f"{{field}} is {{value}}: {UNKNOWN}",
}
_WRONG_TYPE: Final = {
    Expected.DECISION: "a {value} is no decision",
    Expected.DESIRED_STATE: "a {value} is no desired state",
    Expected.SLOT_DESIRE: "a {value} is no desire for a slot",
    Expected.TUNING: "a {value} is no tuning",
    Expected.PROCESS: "{value} is no process",
    Expected.TUPLE: "{field} is a {value}, not a tuple",
    Expected.CPU_LIST: "{field} is no tuple of at most {high} CPUs",
    Expected.PROCESS_LIST: "{field} is no tuple of at most {high} processes",
    Expected.INTEGER: "{field} is {value}, not an integer",
    Expected.NUMBER: "{field} is {value}, not a number",
    Expected.FLAG: "{field} is {value}, not true or false",
    Expected.TEXT: "{field} is not a text",
    Expected.SHORT_TEXT: "the tuning's {field} is not a short printable text",
    Expected.PAGE_ADVICE: "{field} is {value}",
    Expected.FILE_PAGES: "{field} is {value}",
    Expected.THREAD: "{value} is no setting of a thread",
    Expected.THREAD_LIST: "{field} is no tuple of at most {high} threads",
    Expected.NOTHING_ELSE: "{field} is {value}",
}


def _exact(number: float | None) -> str:
    """Write a number, and a whole one without an exponent."""
    if number is None:
        return "?"
    return f"{number:.0f}" if math.isfinite(number) and number == int(number) else f"{number:g}"
