"""Which changes of a desired state are worth telling."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from stallward.actuator.record.desired.changes import differ
from stallward.agent.desired import FLUSH, MIB, RELEASED, DesiredState, ProcessRef, SlotDesire
from stallward.agent.file_pages import FilePages

OTHER: dict[str, Any] = {
    "paused": True,
    "terminated": True,
    "cpu_max_cores": 0.5,
    "cpus": (0, 1),
    "page_advice": "cold",
    "slots": (SlotDesire(nice=5),),
    "tuning": FLUSH,
    "stopped": (ProcessRef(pid=7, start_time_ticks=9),),
    "terminate": ProcessRef(pid=7, start_time_ticks=9),
    "protect_from_oom": True,
    "protected_willneed": True,
    "kill_at_once": True,
    "file_pages": FilePages(action="clear", victim="largest-file"),
}


@pytest.mark.parametrize("field", [field.name for field in fields(SlotDesire)])
def test_every_lever_of_a_slot_counts(field: str) -> None:
    moved = DesiredState(slots=(SlotDesire(), SlotDesire(**{field: OTHER.get(field, 10)})))
    assert differ(RELEASED, moved)
    assert differ(moved, RELEASED)
    assert not differ(moved, moved)


@pytest.mark.parametrize("field", [field.name for field in fields(DesiredState)])
def test_everything_of_the_node_counts(field: str) -> None:
    assert differ(RELEASED, replace(RELEASED, **{field: OTHER.get(field, 10)}))


def test_a_slot_that_is_named_without_a_wish_is_no_change() -> None:
    assert not differ(RELEASED, DesiredState(slots=(SlotDesire(), SlotDesire())))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [(100, 109, False), (100, 111, True), (100, 91, False), (100, 89, True), (0, 1, True)],
)
def test_a_size_counts_from_a_tenth_on(before: int, now: int, expected: bool) -> None:
    def state(mib: int) -> DesiredState:
        return DesiredState(slots=(SlotDesire(limit_bytes=mib * MIB),))

    assert differ(state(before), state(now)) is expected
