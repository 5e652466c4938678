"""Pods that have something in common share a slot, which no rollout takes from them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pods import pod, uid_of

from stallward.actuator.targets.config import PodConfig
from stallward.actuator.targets.qos import Qos
from stallward.actuator.targets.selection import GroupBy, Grouping, parse_group_by
from stallward.agent.errors import SchemaError
from stallward.kubernetes.assign import MOST_PODS, Assignment, assign
from stallward.kubernetes.pod import Pod

TEAM = "example.com/team"
BY_TEAM = PodConfig(selector="app=batch", group_by=f"annotation:{TEAM}")


def group_of(one: Pod) -> str:
    return f"kubepods/pod{one.uid}"


def of_team(number: int, team: str | None, **changes: object) -> Pod:
    annotations = {} if team is None else {TEAM: team}
    return pod("batch", number=number, annotations=annotations, **changes)


def uids(assignment: Assignment) -> list[list[str]]:
    return [[placed.pod.uid for placed in place] for place in assignment.slots]


def place(pods: list[Pod], config: PodConfig, slots: int, before: Assignment | None = None) -> Any:
    return assign(pods, group_of, (None,), [config] * slots, before or Assignment())


@pytest.mark.parametrize(
    ("text", "grouping"),
    [
        ("pod", Grouping(by=GroupBy.POD)),
        ("all", Grouping(by=GroupBy.ALL)),
        ("qos", Grouping(by=GroupBy.QOS)),
        ("label:app", Grouping(by=GroupBy.LABEL, key="app")),
        (f"annotation:{TEAM}", Grouping(by=GroupBy.ANNOTATION, key=TEAM)),
    ],
)
def test_a_rule_is_read(text: str, grouping: Grouping) -> None:
    assert parse_group_by(text) == grouping


@pytest.mark.parametrize(
    "text", ["", "team", "qos:Burstable", "label", "label:", "annotation:a b", "label:-x", "pod:"]
)
def test_any_other_is_refused_with_what_could_be_written(text: str) -> None:
    with pytest.raises(SchemaError, match="group_by is") as caught:
        PodConfig(selector="app=batch", group_by=text)
    assert "label:" in caught.value.next_step


@pytest.mark.parametrize(("group_by", "most"), [("all", 1), ("qos", 3)])
def test_slots_that_could_never_be_filled_are_refused(group_by: str, most: int) -> None:
    PodConfig(selector="app=batch", group_by=group_by, slots=most)
    with pytest.raises(SchemaError, match=f"fills {most} at most"):
        PodConfig(selector="app=batch", group_by=group_by, slots=most + 1)


def test_pods_of_one_quality_of_service_share_a_slot_the_best_effort_first() -> None:
    pods = [
        pod("batch", number=1, qos=Qos.GUARANTEED),
        pod("batch", number=2, qos=Qos.BURSTABLE),
        pod("batch", number=3),
        pod("batch", number=4, qos=Qos.BURSTABLE),
        pod("batch", number=5),
    ]
    by_qos = PodConfig(selector="app=batch", group_by="qos")
    placed = place(pods, by_qos, 2)
    assert uids(placed) == [[uid_of(3), uid_of(5)], [uid_of(2), uid_of(4)]]
    assert placed.surplus == 1, "the third quality of service has no slot"


def test_pods_share_by_label_by_annotation_or_all_of_them() -> None:
    pods = [of_team(1, "a"), of_team(2, "b"), of_team(3, "a"), of_team(4, None), of_team(5, None)]
    assert uids(place(pods, BY_TEAM, 3)) == [
        [uid_of(1), uid_of(3)],
        [uid_of(2)],
        [uid_of(4), uid_of(5)],  # those without the annotation are one group, too
    ]
    labelled = [pod("batch", number=n, labels={"app": "batch", "job": "x"}) for n in (1, 2)]
    by_job = PodConfig(selector="app=batch", group_by="label:job")
    assert uids(place(labelled, by_job, 2)) == [[uid_of(1), uid_of(2)], []]
    everything = PodConfig(selector="app=batch", group_by="all")
    assert uids(place(pods, everything, 1)) == [[uid_of(n) for n in range(1, 6)]]


def test_a_rollout_never_takes_the_slot_from_its_group() -> None:
    old, other = [of_team(1, "a"), of_team(2, "a")], of_team(3, "b")
    first = place([*old, other], BY_TEAM, 2)
    both = place([of_team(9, "a"), *old, other, of_team(4, "c")], BY_TEAM, 2, first)
    assert uids(both) == [[uid_of(1), uid_of(2), uid_of(9)], [uid_of(3)]]
    assert both.surplus == 1, "the third group waits"
    ending = of_team(1, "a", deletionTimestamp="2026-01-01T00:00:00Z")
    after = place([ending, of_team(9, "a"), other, of_team(4, "c")], BY_TEAM, 2, both)
    assert uids(after) == [[uid_of(9)], [uid_of(3)]]
    gone = place([other, of_team(4, "c")], BY_TEAM, 2, after)
    assert uids(gone) == [[uid_of(4)], [uid_of(3)]], "a slot without pods is free"


def test_a_pod_that_changes_its_group_changes_its_slot() -> None:
    first = place([of_team(1, "a"), of_team(2, "a"), of_team(3, "b")], BY_TEAM, 2)
    moved = place([of_team(1, "b"), of_team(2, "a"), of_team(3, "b")], BY_TEAM, 2, first)
    assert uids(moved) == [[uid_of(2)], [uid_of(3), uid_of(1)]]


def test_a_table_that_stands_first_has_the_pod() -> None:
    single, rest = PodConfig(selector="app=batch"), PodConfig(namespace="work", group_by="all")
    pods = [pod("batch", number=n) for n in (1, 2, 3)]
    first = assign(pods, group_of, (None,), [rest, single], Assignment())
    assert uids(first) == [[uid_of(1), uid_of(2), uid_of(3)], []]
    other = assign(pods, group_of, (None,), [single, rest], Assignment())
    assert uids(other) == [[uid_of(1)], [uid_of(2), uid_of(3)]]


def test_one_slot_has_a_bounded_number_of_pods() -> None:
    pods = [of_team(n, "a") for n in range(MOST_PODS + 3)]
    placed = place(pods, BY_TEAM, 2)
    assert [len(one) for one in placed.slots] == [MOST_PODS, 0], "no group has two slots"
    assert placed.surplus == 3


STEPS = st.lists(
    st.dictionaries(
        st.integers(1, 12), st.tuples(st.sampled_from(["a", "b", "c", None]), st.booleans())
    )
)


@given(STEPS, st.integers(1, 4))
def test_whatever_comes_and_goes_groups_keep_their_slots(
    steps: list[dict[int, tuple[str | None, bool]]], slots: int
) -> None:
    placed = Assignment()
    for step in steps:
        pods = [
            of_team(number, team, deletionTimestamp="x" if ends else None)
            for number, (team, ends) in step.items()
        ]
        before, placed = placed, place(pods, BY_TEAM, slots, placed)
        usable = {one.uid: one.annotations.get(TEAM, "") for one in pods if not one.leaving}
        now = uids(placed)
        listed = [uid for one in now for uid in one]
        assert len(listed) == len(set(listed))
        assert placed.surplus == len(usable) - len(listed)
        teams = [{usable[uid] for uid in one} for one in now if one]
        assert all(len(team) == 1 for team in teams)
        assert len({next(iter(team)) for team in teams}) == len(teams)
        assert len(teams) == min(len(set(usable.values())), slots)
        for old, new in zip(before.slots, now, strict=False):
            for last in old:
                if usable.get(last.pod.uid) == last.value:
                    assert last.pod.uid in new, "whoever stays keeps the slot"
