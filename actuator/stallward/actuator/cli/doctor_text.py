"""What ``stallward doctor`` prints of its findings. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap
from typing import Final

from stallward.actuator.doctor.finding import Finding

COLUMNS: Final = 100
_INDENT: Final = 10
_FEW: Final = 2
"""So many levers that are not here are listed one by one; of more their number is given."""


def finding_lines(findings: Iterable[Finding], *, everything: bool = False) -> list[str]:
    """Say what does not work, each with what to do about it, in lines of at most 100 columns.

    A lever that the node lacks is not here, which is no failure: they are only counted.

    Args:
        findings: The findings.
        everything: Whether to list what works as well, and each lever that is not here.
    """
    shown, not_here = [], []
    for one in findings:
        if one.area == "lever" and one.state == "missing":
            not_here.append(one)
        elif everything or one.state != "works":
            shown.append(one)
    lines = [line for one in shown for line in _lines(one)]
    if everything or len(not_here) <= _FEW:
        return [*lines, *(line for one in not_here for line in _lines(one))]
    kinds = dict.fromkeys(one.name.partition(":")[0] for one in not_here)
    text = f"{len(not_here)} levers ({', '.join(kinds)}); --all says why"
    return [*lines, *_folded("not here", text)]


def _lines(one: Finding) -> list[str]:
    """The state, whose it is, why, and on a line of its own what to do."""
    state = "not here" if one.area == "lever" and one.state == "missing" else one.state
    why = one.why.removeprefix(f"{one.name}: ")
    lines = _folded(state, f"{one.name}: {why}" if why else one.name)
    if one.next_step and one.state != "works":
        lines += _folded("", f"-> {one.next_step}")
    return lines


def _folded(head: str, text: str) -> list[str]:
    first, *others = wrap(text, COLUMNS - _INDENT, break_on_hyphens=False) or [""]
    return [f"{head:<{_INDENT}}{first}".rstrip(), *(" " * _INDENT + other for other in others)]
