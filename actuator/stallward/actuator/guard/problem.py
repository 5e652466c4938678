"""The problem that makes a desired state or a decision unusable, as a value. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Flaw(enum.Enum):
    """The kind of mistake in one field."""

    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    NOT_FINITE = "not_finite"
    """The value is a NaN or an infinity."""
    TOO_MANY_SLOTS = "too_many_slots"
    """The state names more slots than the ``high`` slots of the node."""
    EMPTY_ENTRY = "empty_entry"
    """One of the entries is ``None``."""
    OTHER = "other"
    """A flaw that this version does not know."""


class Expected(enum.Enum):
    """The type that a field should have had."""

    NOTHING_ELSE = "nothing_else"
    """The type is right; something else is wrong."""
    DECISION = "decision"
    DESIRED_STATE = "desired_state"
    SLOT_DESIRE = "slot_desire"
    TUNING = "tuning"
    PROCESS = "process"
    TUPLE = "tuple"
    CPU_LIST = "cpu_list"
    """A tuple of at most ``high`` CPUs."""
    PROCESS_LIST = "process_list"
    """A tuple of at most ``high`` processes."""
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "flag"
    TEXT = "text"
    SHORT_TEXT = "short_text"
    """A short printable text."""
    PAGE_ADVICE = "page_advice"
    FILE_PAGES = "file_pages"
    THREAD = "thread"
    THREAD_LIST = "thread_list"
    """A tuple of at most ``high`` threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The first thing that is wrong with a desired state or a decision."""

    flaw: Flaw
    field: str
    """The name of the field."""
    value: str = ""
    """The value as Python writes it, or only its type where the value would not help."""
    expected: Expected = Expected.NOTHING_ELSE
    low: float | None = None
    """The lowest value that is allowed, if there is a range."""
    high: float | None = None
    """The highest value that is allowed, if there is a bound."""
    slot: int | None = None
    """The number of the slot with the problem, if it is in a slot."""
