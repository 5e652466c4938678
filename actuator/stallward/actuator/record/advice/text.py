"""Makes a sentence of a piece of advice, as ``ctl advice`` and the journal say it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from stallward.actuator.record.advice.advice import Advice
from stallward.actuator.record.desired.changes import differ
from stallward.actuator.record.desired.text import NOTHING, desired_text
from stallward.actuator.record.reasons_text import cause_text, kind_text
from stallward.actuator.record.tick_record import NamedDecision


def advice_text(advice: Advice, names: Sequence[str] = ()) -> str:
    """Say what a policy would do and why, what is done instead, and how the application does.

    Args:
        advice: The advice.
        names: The slots' names; a slot without one goes by its number.
    """
    sentences = [_advised(advice, names), _situation(advice)]
    if advice.left_out:
        sentences.append(f"{advice.left_out} changes before that were not told.")
    return " ".join(filter(None, sentences))


def _advised(advice: Advice, names: Sequence[str]) -> str:
    decided, advised = advice.decided, advice.advised
    if advised is None:
        fault = advice.fault
        why = (
            ""
            if fault is None
            else f" ({kind_text(fault.kind)}: {cause_text(fault.cause, names)})"
        )
        who = "the policy" if fault is None else fault.controller
        return f"{who} gives no advice{why}; {_wants(decided, names)}."
    words = f"{advised.controller} would {_doing(advised, names)}"
    if differ(advised.decision.desired, decided.decision.desired):
        return f"{words}; {_wants(decided, names)}."
    return f"{words}; {decided.controller} wants the same."


def _wants(named: NamedDecision, names: Sequence[str]) -> str:
    return f"{named.controller} decides to {_doing(named, names)}"


def _doing(named: NamedDecision, names: Sequence[str]) -> str:
    """What a decision does and why, e.g. ``pause training (room 300 MiB)``."""
    words = desired_text(named.decision.desired, names)
    reason = f" ({named.decision.reason})" if named.decision.reason else ""
    return f"{'do nothing' if words == NOTHING else words}{reason}"


def _situation(advice: Advice) -> str:
    parts = []
    if advice.p95_ms is not None:
        target = "" if advice.slo_ms is None else f" of at most {advice.slo_ms:.3g} ms"
        parts.append(f"p95 {advice.p95_ms:.3g} ms{target}")
    if advice.stall_share is not None:
        parts.append(
            f"the application waits for memory {100 * advice.stall_share:.0f} % of the time"
        )
    text = ", and ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""
