"""What is said in one line of how the slots are treated."""

from __future__ import annotations

import pytest

from stallward.actuator.record.desired.text import node_text, slot_text, treatments_text
from stallward.agent.desired import MIB, PROFILES, RELEASED, DesiredState, SlotDesire

HELD = SlotDesire(paused=True, limit_bytes=8 * MIB)
FREE = SlotDesire()


def test_a_slot_is_described_without_its_name() -> None:
    assert slot_text(FREE) == "free"
    assert slot_text(SlotDesire(paused=True, limit_bytes=8 * MIB, cpu_weight=1)) == (
        "paused, limit 8 MiB, CPU weight 1"
    )


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        ((FREE, FREE), (HELD, HELD), "sort, train paused, limit 8 MiB"),
        ((FREE, HELD), (HELD, HELD), "sort paused, limit 8 MiB"),
        ((HELD, HELD), (), "sort, train free"),
        ((HELD, FREE), (FREE, HELD), "sort free; train paused, limit 8 MiB"),
        ((HELD,), (SlotDesire(paused=True, limit_bytes=int(8.5 * MIB)),), ""),
    ],
)
def test_a_change_is_one_line_with_the_slots_that_are_treated_otherwise(
    before: tuple[SlotDesire, ...], now: tuple[SlotDesire, ...], text: str
) -> None:
    said = treatments_text(DesiredState(slots=before), DesiredState(slots=now), ("sort", "train"))
    assert said == text


def test_what_changes_for_the_node_comes_last() -> None:
    held = DesiredState(slots=(HELD,), protected_low_bytes=41 * MIB, tuning=PROFILES[1])
    assert node_text(held) == f"guarantee the application 41 MiB, tune {PROFILES[1].name}"
    assert treatments_text(RELEASED, held) == f"0 paused, limit 8 MiB; {node_text(held)}"
    assert treatments_text(held, RELEASED) == "0 free; all else as it was"
