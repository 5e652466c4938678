"""How what is granted to a slot is divided among the pods that share it."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from stallward.actuator.node.shared_levers import (
    KEPT_RATIO,
    PACE_RATIO,
    UNDIVIDED,
    Division,
    PodUse,
    divide,
)
from stallward.agent.desired import MIB, SlotDesire

FLOOR = 16 * MIB


def pod(name: str, usage_mib: float | None, swap_mib: float = 0.0, **changes: float) -> PodUse:
    usage = None if usage_mib is None else int(usage_mib * MIB)
    made = PodUse(name=name, usage_bytes=usage, swap_bytes=int(swap_mib * MIB), least_bytes=FLOOR)
    return replace(made, **changes)  # type: ignore[arg-type]


def part(
    granted: SlotDesire, pods: list[PodUse], before: Division = UNDIVIDED, *, paced: bool = False
) -> tuple[tuple[SlotDesire, ...], Division]:
    return divide(granted, pods, before, margin_bytes=16 * MIB, paced=paced)


def limits_mib(parts: tuple[SlotDesire, ...]) -> list[float | None]:
    return [None if one.limit_bytes is None else one.limit_bytes / MIB for one in parts]


def test_what_is_no_amount_is_for_each_pod() -> None:
    granted = SlotDesire(paused=True, cpu_weight=3, io_weight=5, nice=9, page_advice="cold")
    parts, division = part(granted, [pod("a", 10), pod("b", None)])
    assert parts == (granted, granted)
    assert division == UNDIVIDED


def test_no_pod_gets_more_than_it_holds_while_another_wants_more() -> None:
    pods = [pod("a", 20, 10), pod("b", 300), pod("c", 100, 200)]
    parts, _ = part(SlotDesire(limit_bytes=330 * MIB), pods)
    assert limits_mib(parts) == [30, 150, 150]


def test_what_nobody_wants_is_shared_so_that_each_may_grow() -> None:
    parts, _ = part(SlotDesire(limit_bytes=200 * MIB), [pod("a", 50), pod("b", 90)])
    assert limits_mib(parts) == [80, 120]


def test_no_pod_gets_less_than_its_floor_or_than_what_it_cannot_give_up() -> None:
    pods = [pod("a", 20), pod("b", 100, least_bytes=90 * MIB), pod("c", 100)]
    parts, _ = part(SlotDesire(limit_bytes=60 * MIB), pods)
    assert limits_mib(parts) == [20, 90, 16], "the floors may add up to more than the limit"


def test_a_pod_of_which_nothing_is_known_gets_no_limit() -> None:
    parts, _ = part(SlotDesire(limit_bytes=64 * MIB, swap_max_bytes=MIB), [pod("a", None)])
    assert parts == (SlotDesire(),)


def test_a_division_stays_while_it_would_change_little() -> None:
    granted = SlotDesire(limit_bytes=200 * MIB)
    first, division = part(granted, [pod("a", 100), pod("b", 150)])
    again, kept = part(granted, [pod("a", 96), pod("b", 150)], division)
    assert (again, kept) == (first, division)
    other, _ = part(granted, [pod("a", 40), pod("b", 150)], division)
    assert limits_mib(other) == [45, 155]
    less, _ = part(SlotDesire(limit_bytes=196 * MIB), [pod("a", 100), pod("b", 150)], division)
    assert sum(one or 0 for one in limits_mib(less)) == 196, "what is granted is kept to"


def test_a_pod_that_comes_takes_nothing_from_the_others_at_once() -> None:
    granted = SlotDesire(limit_bytes=200 * MIB)
    _, division = part(granted, [pod("a", 200)], paced=True)
    seen = []
    for _ in range(12):
        parts, division = part(granted, [pod("a", 200), pod("b", 400)], division, paced=True)
        seen.append(limits_mib(parts))
    assert seen[0] == [150, 300], "a quarter less, of the limit before or of what it holds"
    assert seen[-1] == [100, 100]
    paused, _ = part(replace(granted, paused=True), [pod("a", 200), pod("b", 400)], paced=True)
    assert limits_mib(paused) == [100, 100], "a paused slot is squeezed at once"


def test_a_hard_limit_stays_above_what_a_pod_uses_and_above_its_limit() -> None:
    granted = SlotDesire(limit_bytes=100 * MIB, hard_limit_bytes=120 * MIB)
    parts, division = part(granted, [pod("a", 80), pod("b", 20)])
    for one, usage_mib in zip(parts, (80, 20), strict=True):
        assert one.hard_limit_bytes is not None
        assert one.limit_bytes is not None
        assert one.hard_limit_bytes >= (usage_mib + 16) * MIB
        assert one.hard_limit_bytes >= one.limit_bytes + 16 * MIB
    grown, _ = part(granted, [pod("a", 84), pod("b", 24)], division)
    assert (grown[1].hard_limit_bytes or 0) >= (24 + 16) * MIB, "a kept one, too"


def test_what_was_reclaimed_once_is_not_reclaimed_again_because_usage_changed() -> None:
    granted = SlotDesire(reclaim_to_bytes=120 * MIB)
    first, division = part(granted, [pod("a", 100), pod("b", 100)])
    assert [one.reclaim_to_bytes for one in first] == [60 * MIB, 60 * MIB]
    again, division = part(granted, [pod("a", 60), pod("b", 90)], division)
    assert again == first
    joined, _ = part(granted, [pod("a", 60), pod("b", 90), pod("c", 50)], division)
    assert [one.reclaim_to_bytes for one in joined] == [60 * MIB, 60 * MIB, 40 * MIB]


def test_a_rate_goes_where_it_is_used_and_leaves_each_a_little() -> None:
    granted = SlotDesire(io_max_bytes_per_s=80 * MIB, cpu_max_cores=2.0)
    idle, busy = pod("a", 10, io_bytes_per_s=0.0), pod("b", 10, io_bytes_per_s=40.0 * MIB)
    first, division = part(granted, [idle, busy])
    assert [one.io_max_bytes_per_s for one in first] == [40 * MIB, 40 * MIB]
    assert [one.cpu_max_cores for one in first] == [1.0, 1.0], "nothing is known of their use"
    moved, _ = part(granted, [idle, busy], division)
    assert [one.io_max_bytes_per_s for one in moved] == [10 * MIB, 70 * MIB]


def test_nothing_granted_is_nothing_divided() -> None:
    _, division = part(SlotDesire(limit_bytes=64 * MIB), [pod("a", 90)])
    parts, after = part(SlotDesire(), [pod("a", 90)], division)
    assert parts == (SlotDesire(),)
    assert after == UNDIVIDED


PODS = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 200), st.integers(1, 64)), min_size=1, max_size=6
)


@given(st.integers(1, 1000), PODS, PODS, st.booleans())
@example(1, [(0, 0, 23), (0, 0, 1)], [(0, 0, 21), (0, 0, 1)], True)
def test_the_parts_make_up_the_limit_and_never_fall_too_far(
    limit_mib: int,
    before: list[tuple[int, int, int]],
    now: list[tuple[int, int, int]],
    paused: bool,
) -> None:
    granted = SlotDesire(paused=paused, limit_bytes=limit_mib * MIB)

    def pods(rows: list[tuple[int, int, int]]) -> list[PodUse]:
        return [
            pod(str(i), usage, swap, least_bytes=least * MIB)
            for i, (usage, swap, least) in enumerate(rows)
        ]

    first, division = part(granted, pods(before), paced=True)
    last = dict(zip((str(i) for i in range(len(before))), first, strict=True))
    uses = pods(now)
    parts, _ = part(granted, uses, division, paced=True)
    total = 0
    for use, one in zip(uses, parts, strict=True):
        assert one.limit_bytes is not None
        assert one.limit_bytes >= use.least_bytes
        total += one.limit_bytes
        if not paused:
            old = last.get(use.name)
            reached = use.held_bytes if old is None else old.limit_bytes or 0
            assert one.limit_bytes >= math.floor(PACE_RATIO * reached) - 1
    if paused:
        least = sum(use.least_bytes for use in uses)
        kept = least / (1.0 - KEPT_RATIO)  # a part that is kept may come of a larger least size
        assert total <= limit_mib * MIB + kept
        assert total >= limit_mib * MIB - len(uses)
