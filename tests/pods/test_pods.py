"""Pods are read from the API's JSON, and get places that they keep."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pods import mirror_of, pod, uid_of, written

from stallward.actuator.targets.config import PodConfig, keys_of
from stallward.actuator.targets.qos import Qos
from stallward.agent.errors import SchemaError
from stallward.kubernetes.assign import Assignment, assign
from stallward.kubernetes.errors import PodsError
from stallward.kubernetes.pod import OddPod, Pod, key_of, parse_pod, parse_pods

APP = PodConfig(selector="app=app")
BATCH = PodConfig(selector="app=batch")


def group_of(one: Pod) -> str | None:
    return f"kubepods/pod{one.uid}"


def names(assignment: Assignment) -> list[str | None]:
    return [place[0].pod.uid if place else None for place in assignment.slots]


def test_a_pod_is_read() -> None:
    one = pod("batch", number=7, annotations={"stallward.io/role": "background"})
    assert (str(one), one.uid, one.qos) == ("work/batch", uid_of(7), Qos.BEST_EFFORT)
    assert not one.leaving
    assert pod("batch", deletionTimestamp="2026-01-01T00:00:00Z").leaving
    ended = written("batch")
    ended["status"]["phase"] = "Succeeded"
    assert parse_pod(ended).leaving


def test_the_mirror_pod_of_a_static_pod_has_the_group_that_the_kubelet_gave_that() -> None:
    static = pod("etcd", **mirror_of("abc123"))
    assert (static.key, static.uid) == (uid_of(1), "abc123")


@pytest.mark.parametrize(
    "changes",
    [
        {"annotations": {"kubernetes.io/config.hash": "abc123"}},
        {"ownerReferences": []},
        {"ownerReferences": [{"kind": "ReplicaSet", "name": "node-7"}]},
        {
            "annotations": {
                "kubernetes.io/config.hash": "abc123",
                "kubernetes.io/config.mirror": "f00",  # what no update may change
            }
        },
    ],
    ids=str,
)
def test_an_annotation_alone_names_no_group(changes: dict[str, Any]) -> None:
    one = pod("batch", **{**mirror_of("abc123"), **changes})
    assert (one.key, one.uid) == (uid_of(1), uid_of(1))


def test_of_labels_and_annotations_only_what_is_asked_for_is_kept() -> None:
    value = written("batch", labels={"app": "batch", "x": "1"}, annotations={"a": "2", "b": "3"})
    keys = keys_of([None, PodConfig(selector="app=batch,!tier", group_by="annotation:a")])
    assert keys == {"app", "tier", "a", "stallward.io/role"}
    one = parse_pod(value, keys)
    assert (one.labels, one.annotations) == ({"app": "batch"}, {"a": "2"})


@pytest.mark.parametrize(
    ("requests", "limits", "qos"),
    [
        ({}, {}, Qos.BEST_EFFORT),
        ({"cpu": "1"}, {}, Qos.BURSTABLE),
        ({}, {"cpu": "1", "memory": "1Gi"}, Qos.GUARANTEED),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}, Qos.GUARANTEED),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}, Qos.BURSTABLE),
    ],
)
def test_a_pod_without_a_status_has_the_quality_of_its_requests(
    requests: dict[str, str], limits: dict[str, str], qos: Qos
) -> None:
    new = written("batch")
    del new["status"]
    new["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": limits}
    assert parse_pod(new).qos is qos


ODD: dict[str, Any] = {
    "null": None,
    "a number": 3,
    "no metadata": {},
    "no UID": {"metadata": {"name": "x"}},
    "no name": {"metadata": {"uid": "x"}},
    "a path for a UID": {"metadata": {"uid": "../../system.slice", "name": "x"}},
    "an empty UID": {"metadata": {"uid": "", "name": "x"}},
    "an endless UID": {"metadata": {"uid": "a" * 129, "name": "x"}},
    "a name for a terminal": {"metadata": {"uid": "x", "name": "\x1b[2J"}},
    "a path for a static UID": {
        "metadata": {"uid": "x", "name": "x", **mirror_of("../x")},
    },
    "an unknown quality of service": {**written("x"), "status": {"qosClass": "Elastic"}},
    "null containers": {**written("x"), "spec": {"containers": None}, "status": {}},
    "an annotation that is no text": written("x", annotations={"a": 3}),  # type: ignore[dict-item]
    "labels that are no table": written("x", labels=["a"]),  # type: ignore[arg-type]
    "owners that are none": written("x", **{**mirror_of("a"), "ownerReferences": [3]}),
    "an address that is none": {**written("x"), "status": {"podIP": "localhost"}},
}


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_an_odd_pod_costs_that_pod_alone_and_is_named(value: object) -> None:
    with pytest.raises(PodsError, match="is not one"):
        parse_pod(value)
    good = written("batch", number=7)
    first, odd, last = parse_pods({"items": [good, value, good]})
    assert first == last == parse_pod(good)
    assert isinstance(odd, OddPod)
    assert odd.why.startswith(
        ("work/x: ", "default/x: ", "a pod without a name: ", "default/?[2J")
    )
    assert odd.why.isprintable()
    assert len(odd.why) <= 200
    assert odd.key == key_of(value)


@pytest.mark.parametrize("value", [None, {}, {"items": 3}, {"items": "x"}, {"items": {}}, 3])
def test_what_is_no_list_of_pods_is_refused(value: Any) -> None:
    with pytest.raises(PodsError, match="no list of pods"):
        parse_pods(value)


@pytest.mark.parametrize(
    ("config", "selected"),
    [
        (PodConfig(selector="app=batch"), True),
        (PodConfig(namespace="work"), True),
        (PodConfig(namespace="other", selector="app=batch"), False),
        (PodConfig(role="background"), True),
        (PodConfig(role="protected"), False),
        (PodConfig(qos=(Qos.BEST_EFFORT, Qos.BURSTABLE)), True),
        (PodConfig(namespace="work", qos=(Qos.GUARANTEED,)), False),
    ],
)
def test_all_that_is_given_must_hold(config: PodConfig, selected: bool) -> None:
    one = pod("batch", annotations={"stallward.io/role": "background"})
    assert config.matches(one) is selected


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"selector": " "},
        {"selector": "app="},
        {"namespace": " "},
        {"role": ""},
        {"selector": "a", "slots": 0},
    ],
)
def test_a_selection_of_everything_is_refused(values: dict[str, object]) -> None:
    if values == {"selector": "app="}:
        PodConfig(selector="app=")  # an empty value is one
        return
    with pytest.raises(SchemaError):
        PodConfig(**values)  # type: ignore[arg-type]


def test_the_best_effort_have_the_slots_first_and_then_the_oldest() -> None:
    pods = [
        pod("batch", number=1, qos=Qos.GUARANTEED),
        pod("batch", number=2, qos=Qos.BURSTABLE),
        pod("batch", number=4),
        pod("batch", number=3),
    ]
    assigned = assign(pods, group_of, (None,), [BATCH, BATCH, BATCH], Assignment())
    assert names(assigned) == [uid_of(3), uid_of(4), uid_of(2)]
    assert assigned.surplus == 1


def test_a_pod_keeps_its_slot_while_others_come_and_go() -> None:
    old = [pod("batch", number=n) for n in (5, 6)]
    first = assign(old, group_of, (None,), [BATCH, BATCH], Assignment())
    older = [pod("batch", number=1), *old]
    assert names(assign(older, group_of, (None,), [BATCH, BATCH], first)) == names(first)
    left = assign([older[0], old[1]], group_of, (None,), [BATCH, BATCH], first)
    assert names(left) == [uid_of(1), uid_of(6)]


def test_a_pod_that_ends_or_has_no_group_has_no_place() -> None:
    ending = pod("batch", deletionTimestamp="2026-01-01T00:00:00Z")
    assert names(assign([ending], group_of, (None,), [BATCH], Assignment())) == [None]
    assert names(assign([pod("batch")], lambda _: None, (None,), [BATCH], Assignment())) == [None]


def test_in_a_rollout_the_new_pod_is_protected_once_the_old_one_ends() -> None:
    old, new = pod("app", number=1), pod("app", number=2)
    first = assign([old], group_of, (APP,), [], Assignment())
    both = assign([old, new], group_of, (APP,), [], first)
    assert both.protected == first.protected
    assert both.beside == 1
    ending = pod("app", number=1, deletionTimestamp="2026-01-01T00:00:00Z")
    after = assign([ending, new], group_of, (APP,), [], both)
    assert [placed and placed.pod for placed in after.protected] == [new]


def test_each_of_several_applications_has_a_pod_of_its_own() -> None:
    web, everything = PodConfig(selector="app=web"), PodConfig(namespace="work")
    first = [pod("app", number=1), pod("web", number=2), pod("batch", number=3)]
    known = assign(first, group_of, (APP, web), [everything], Assignment())
    assert [placed and placed.pod.uid for placed in known.protected] == [uid_of(1), uid_of(2)]
    assert names(known) == [uid_of(3)]
    # One that matches both stays where it is, and the other is not let go for it.
    both = PodConfig(selector="app in (app,web)")
    later = assign(first, group_of, (both, APP), [everything], known)
    assert [placed and placed.pod.uid for placed in later.protected] == [uid_of(1), None]
    assert later.beside == 1
    assert names(later) == [uid_of(3)], "what matches one is never a slot"
    gone = assign(first[1:], group_of, (APP, web), [everything], known)
    assert [placed and placed.pod.uid for placed in gone.protected] == [None, uid_of(2)]


def test_a_pod_that_is_protected_is_never_a_slot() -> None:
    everything = PodConfig(namespace="work")
    pods = [pod("app", number=1), pod("app", number=2), pod("batch", number=3)]
    assigned = assign(pods, group_of, (APP,), [everything] * 3, Assignment())
    assert names(assigned) == [uid_of(3), None, None]
    # Also if it was a slot before it got its label.
    before = assign(pods, group_of, (None,), [everything] * 3, Assignment())
    assert names(assign(pods, group_of, (APP,), [everything] * 3, before))[:2] == [None, None]


ROLES = st.sampled_from(["app", "batch", "other"])


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 12), ROLES, st.booleans()), max_size=12)),
    st.integers(1, 4),
)
def test_whatever_comes_and_goes_no_pod_moves_and_none_has_two_places(
    steps: list[list[tuple[int, str, bool]]], slots: int
) -> None:
    wanted = [BATCH] * slots
    assigned = Assignment()
    for step in steps:
        pods = {
            number: pod(name, number=number, deletionTimestamp="x" if ends else None)
            for number, name, ends in step
        }
        before, assigned = assigned, assign(pods.values(), group_of, (APP,), wanted, assigned)  # type: ignore[arg-type]
        placed = [one for place in assigned.slots for one in place]
        assert all(len(place) <= 1 for place in assigned.slots)
        uids = [one.pod.uid for one in placed]
        assert len(uids) == len(set(uids))
        assert all(one.pod.labels == {"app": "batch"} and not one.pod.leaving for one in placed)
        usable = [p for p in pods.values() if p.labels == {"app": "batch"} and not p.leaving]
        assert len(placed) == min(len(usable), slots)
        assert assigned.surplus == len(usable) - len(placed)
        for index, last in enumerate(before.slots):
            now = assigned.slots[index]
            if last and last[0].pod.uid in {p.uid for p in usable}:
                assert [one.pod.uid for one in now] == [last[0].pod.uid]
