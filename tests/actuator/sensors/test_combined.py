"""What several groups together say as one slot, while they come and go."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.sensors.combined_groups import CombinedGroups
from stallward.agent.sample import GroupSample, PsiTotals


def group(name: str, **values: Any) -> GroupSample:
    values = {"turn_read_s": 1.0, **values}
    return GroupSample(name=name, **values)


def stalled(name: str, some_us: int, full_us: int = 0) -> GroupSample:
    return group(name, psi=PsiTotals(memory_some_us=some_us, memory_full_us=full_us))


def test_sizes_add_up_and_a_limit_only_where_each_has_one() -> None:
    slot = CombinedGroups("pods:b").combine(
        [
            group("a", memory_usage_bytes=10, anon_bytes=4, swap_bytes=1, memory_limit_bytes=50),
            group("b", memory_usage_bytes=20, anon_bytes=5, swap_bytes=2, memory_limit_bytes=60),
        ]
    )
    assert (slot.name, slot.memory_usage_bytes, slot.anon_bytes) == ("pods:b", 30, 9)
    assert (slot.swap_bytes, slot.memory_limit_bytes, slot.file_bytes) == (3, 110, None)
    unlimited = CombinedGroups("pods:b").combine(
        [group("a", memory_limit_bytes=50), group("b", memory_usage_bytes=3)]
    )
    assert unlimited.memory_limit_bytes is None
    assert unlimited.memory_usage_bytes is None, "what one lacks is not known of all"


def test_a_counter_grows_by_what_its_groups_count_and_never_falls() -> None:
    combined = CombinedGroups("pods:b")

    def faults(**of: int) -> int | None:
        groups = [group(name, major_faults=count) for name, count in of.items()]
        return combined.combine(groups).major_faults

    assert faults(a=1000) == 0, "what a group counted before it came is not the slot's"
    assert faults(a=1005) == 5
    assert faults(a=1006, b=900) == 6, "a new one counts from when it came"
    assert faults(a=1006, b=907) == 13
    assert faults(b=909) == 15, "what one that left had counted stays"
    assert faults(b=3) == 15, "made anew"
    assert faults(b=4) == 16
    assert combined.combine([]).major_faults is None
    assert faults(c=70) == 16


def test_a_stall_is_that_of_the_group_that_stalled_most() -> None:
    combined = CombinedGroups("pods:b")
    combined.combine([stalled("a", 1000), stalled("b", 5000)])
    psi = combined.combine([stalled("a", 1080, 20), stalled("b", 5030)]).psi
    assert (psi.memory_some_us, psi.memory_full_us) == (80, 20)
    psi = combined.combine([stalled("a", 1090, 20), stalled("b", 5090, 50)]).psi
    assert (psi.memory_some_us, psi.memory_full_us) == (140, 70)
    assert psi.io_some_us is None


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 100), min_size=1), min_size=1)
)
def test_a_stall_is_never_longer_than_the_time_in_which_it_was_read(
    steps: list[dict[str, int]],
) -> None:
    combined = CombinedGroups("pods:b")
    totals: dict[str, int] = {}
    last = 0
    for step in steps:
        for name, grown in step.items():
            totals[name] = totals.get(name, 10_000) + grown
        psi = combined.combine([stalled(name, total) for name, total in totals.items()]).psi
        assert psi.memory_some_us is not None
        assert 0 <= psi.memory_some_us - last <= max(step.values())
        last = psi.memory_some_us


def test_it_is_frozen_when_all_are_and_what_is_gone_is_left_out() -> None:
    combined = CombinedGroups("pods:b")
    assert combined.combine([group("a", frozen=True), group("b", frozen=False)]).frozen is False
    assert combined.combine([group("a", frozen=True), group("b", frozen=True)]).frozen is True
    assert combined.combine([group("a", frozen=True), group("b")]).frozen is None
    gone = GroupSample(name="b")
    kept = combined.combine([group("a", memory_usage_bytes=7, frozen=True), gone])
    assert (kept.memory_usage_bytes, kept.frozen) == (7, True)
    assert combined.combine([gone]) == GroupSample(name="pods:b")


def test_what_may_go_to_swap_is_what_each_group_has_room_for() -> None:
    def room(*groups: GroupSample) -> int | None:
        return CombinedGroups("pods:b").combine(groups).swap_room_bytes

    no_swap = group("a", anon_bytes=50, swap_room_bytes=0)
    assert room(no_swap, group("b", anon_bytes=30)) == 30
    assert room(no_swap, group("b", anon_bytes=30, swap_room_bytes=20)) == 20
    assert room(group("a", anon_bytes=1), group("b", anon_bytes=2)) is None
    assert room(no_swap, group("b", swap_room_bytes=9)) == 0


def test_every_field_of_a_sample_is_combined() -> None:
    """A new signal must be given a rule here, or it would be lost for pods that share a slot."""
    elsewhere = {"name", "psi", "frozen", "swap_room_bytes", "turn_read_s"}
    of_processes = {"run_delay_us", "pss_bytes", "page_cache_hits", "page_cache_misses"}
    names = {field.name for field in fields(GroupSample)} - elsewhere - of_processes
    full = group("a", **dict.fromkeys(names, 1))
    combined = CombinedGroups("pods:b")
    combined.combine([full])
    grown: dict[str, Any] = dict.fromkeys(names, 2)
    slot = combined.combine([replace(full, **grown)])
    assert {name for name in names if getattr(slot, name) is None} == set()
