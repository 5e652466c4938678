"""What the guard says about settings of the application's threads, by its rule."""

from __future__ import annotations

from typing import Final

from stallward.actuator.guard.changes import GuardChange, GuardRule

THREAD_RULES: Final = {
    GuardRule.NOT_A_THREAD: "left alone, not a thread of it in the sample",
    GuardRule.NO_CPU_ONLINE: "kept on its own CPUs, none of those wanted is among them",
    GuardRule.THREAD_STEPS: "nice value kept near its own, at {bound:g}",
    GuardRule.TOTAL_SHARE: (
        "nice values left alone, their weights add up to {found:g}, and its own to {bound:g}"
    ),
    GuardRule.THREAD_STARVED: (
        "all put back, it was ready and has not run for {found:.1f} s, at most {bound:g} s"
    ),
}
"""The sentence of each rule, with the numbers of the change."""


def whose_threads(change: GuardChange) -> str:
    """Return which threads a change is about."""
    return "threads" if change.tid is None else f"thread {change.tid}"
