"""From the notes of the engine and the guard to labels: few values, whatever the notes say."""

from __future__ import annotations

import re
from typing import Final

OTHER: Final = "other"
_FALLBACK: Final = "fallback, "
_REASONS: Final = (
    "stale sample",
    "invalid sample",
    "signal lost",
    "observation not finite",
    "controller failed",
    "decision unusable",
    "decision not finite",
    "decision late",
    "outside the training range",
    "outside its training data",
    "waiting",
)
_RULES: Final = (
    (r"not paused, paused .* of the last", "pause_share"),
    (r"not paused, paused", "max_pause"),
    (r"not paused, thawed", "min_run"),
    (r"not paused", "pause"),
    (r"not stopped", "stop"),
    (r"not terminated", "terminate"),
    (r"not limited|no (hard )?limit ", "limit_unknown"),
    (r"raised to its floor", "limit_floor"),
    (r"tightened one level", "limit_step"),
    (r"hard limit (kept|raised)", "hard_limit"),
    (r"reclaimed to", "reclaim_step"),
    (r"raised to", "minimum"),
    (r"guarantee", "guarantee"),
    (r"left out", "cpus"),
)
_COMPILED: Final = tuple((re.compile(pattern), rule) for pattern, rule in _RULES)
_NOT_RULES: Final = ("watched ", "default ", "stepped aside", "and ", _FALLBACK)


def fallback_reason(notes: list[str]) -> str:
    """Why the default controller decided, as a label."""
    for note in notes:
        said = note.removeprefix(_FALLBACK)
        for reason in _REASONS:
            if said.startswith(reason) or f": {reason}" in said:
                return reason.replace(" ", "_")
    return OTHER


def guard_rule(note: str) -> str | None:
    """The rule behind a note of the guard; ``None`` if it is another kind of note."""
    if note.startswith(_NOT_RULES):
        return None
    for pattern, rule in _COMPILED:
        if pattern.search(note):
            return rule
    return None


def lever_kind(lever: str) -> str:
    """The kind of a lever, without whose it is: ``pause`` of ``pause:hog0``."""
    return lever.partition(":")[0] or OTHER
