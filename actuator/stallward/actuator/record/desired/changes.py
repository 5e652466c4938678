"""Whether a desired state has changed so much that people want to be told. Pure."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from stallward.agent.desired import DesiredState, SlotDesire

SMALL_RATIO: Final = 0.1
"""A size that has moved by less than this share counts as the same."""


def differ(before: DesiredState, now: DesiredState) -> bool:
    """Whether two desired states differ by more than a small step of a size."""
    slots = range(max(len(before.slots), len(now.slots)))
    return _fields_differ(before, now, leave_out="slots") or any(
        _fields_differ(before.slot(index), now.slot(index)) for index in slots
    )


def _fields_differ(
    before: DesiredState | SlotDesire, now: DesiredState | SlotDesire, leave_out: str = ""
) -> bool:
    for field in fields(before):
        then, since = getattr(before, field.name), getattr(now, field.name)
        if then == since or field.name == leave_out:
            continue
        is_size = field.name.endswith(("_bytes", "_bytes_per_s"))
        if not is_size or then is None or since is None or abs(since - then) > SMALL_RATIO * then:
            return True
    return False
