"""Refused calls are counted, and logged as far as the log bears it."""

from __future__ import annotations

from stallward.actuator.service.refused import MOST_LINES, SPAN_S, Refusals


def test_a_flood_of_refused_calls_does_not_flood_the_log() -> None:
    lines: list[str] = []
    now_s = 0.0
    refusals = Refusals(lines.append, lambda: now_s)
    for _ in range(1000):
        refusals.note("NOT_FOUND", "no such policy", "unix:")
    assert len(lines) == MOST_LINES
    now_s = SPAN_S
    refusals.note("NOT_FOUND", "no such policy", "unix:")
    assert lines[-1] == (
        f"refused unix:: NOT_FOUND: no such policy ({1000 - MOST_LINES} more were not logged)"
    )
    assert refusals.counts == {"NOT_FOUND": 1001}


def test_a_client_begins_no_line_of_its_own_and_no_endless_one() -> None:
    lines: list[str] = []
    Refusals(lines.append).note(
        "NOT_FOUND", "x\nstallward guardian: all well" + "y" * 5000, "unix:"
    )
    assert "\n" not in lines[0]
    assert len(lines[0]) < 400
