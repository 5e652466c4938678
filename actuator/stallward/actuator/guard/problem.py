"""What makes a desired state or a decision unfit to be used, as a value. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Flaw(enum.Enum):
    """What is wrong with one field."""

    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    NOT_FINITE = "not_finite"
    """It is a NaN or an infinity."""
    TOO_MANY_SLOTS = "too_many_slots"
    """More slots are named than the ``high`` of the node."""
    EMPTY_ENTRY = "empty_entry"
    """One of its entries is ``None``."""
    OTHER = "other"
    """One that this version does not know."""


class Expected(enum.Enum):
    """What a field of the wrong type should have been."""

    NOTHING_ELSE = "nothing_else"
    """The type is not what is wrong."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The first thing that is wrong with a desired state or a decision."""

    flaw: Flaw
    field: str
    """The name of the field."""
    value: str = ""
    """What was there, as Python writes it; only its type where the value says nothing."""
    expected: Expected = Expected.NOTHING_ELSE
    low: float | None = None
    """The least that is allowed, where there is a range."""
    high: float | None = None
    """The most that is allowed, where there is a bound."""
    slot: int | None = None
    """The number of the slot that it is about."""
