"""No value that a tenant writes names, hides or replaces the pod of another one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pods import accepted, mirror_of, pod, uid_of, written

from stallward.kubernetes.identity import believed
from stallward.kubernetes.pod import OddPod, Pod, parse_pod, take_pod
from stallward.kubernetes.store import PodStore

STATIC = "0123456789abcdef0123456789abcdef"


def mirror(name: str, static_uid: str, *, number: int = 1, **changes: Any) -> Pod:
    """A mirror pod with the status of a kubelet."""
    return parse_pod(accepted(written(name, number=number, **mirror_of(static_uid), **changes)))


def names(pods: tuple[Pod, ...]) -> list[str]:
    return [one.name for one in pods]


def test_the_mirror_pod_that_the_kubelet_has_accepted_is_the_static_pod() -> None:
    good, left_out = believed([mirror("etcd", STATIC), pod("batch", number=2)])
    assert [one.uid for one in good] == [STATIC, uid_of(2)]
    assert left_out == ()


def test_a_pods_own_uid_beats_whatever_another_pod_claims() -> None:
    victim, thief = pod("cache", number=1), mirror("thief", uid_of(1), number=2)
    for pods in ([victim, thief], [thief, victim]):
        good, left_out = believed(pods)
        assert good == (victim,)
        assert left_out == (
            "work/thief: an annotation names the group of another pod, work/cache",
        )


def test_a_pod_that_cannot_be_read_keeps_its_group_from_others() -> None:
    odd = take_pod({**written("cache", number=1), "status": {"qosClass": "Elastic"}})
    good, left_out = believed([odd, mirror("thief", uid_of(1), number=2)])
    assert good == ()
    assert len(left_out) == 2


def test_a_claim_without_a_status_of_the_kubelet_takes_nothing_from_the_true_mirror_pod() -> None:
    true, fake = mirror("etcd", STATIC), pod("thief", number=2, **mirror_of(STATIC))
    good, left_out = believed([fake, true])
    assert good == (true,)
    assert left_out == (
        "work/thief: it claims to mirror a static pod, and the kubelet has not said so",
    )
    good, left_out = believed([fake])  # nor where the static pod has no mirror pod at all
    assert (good, len(left_out)) == ((), 1)


def test_two_mirror_pods_of_one_static_pod_are_both_refused_by_name() -> None:
    good, left_out = believed(
        [mirror("etcd", STATIC), mirror("thief", STATIC, number=2), pod("batch", number=3)]
    )
    assert names(good) == ["batch"]
    assert left_out == (
        "work/etcd: work/thief claims to mirror the same static pod",
        "work/thief: work/etcd claims to mirror the same static pod",
    )


def test_a_mirror_pod_that_is_being_deleted_does_not_stand_in_the_way_of_the_next_one() -> None:
    old = mirror("etcd", STATIC, deletionTimestamp="2026-01-01T00:00:00Z")
    new = mirror("etcd", STATIC, number=2)
    good, left_out = believed([old, new])
    assert ([one.key for one in good if not one.leaving], left_out) == ([new.key], ())


def test_pods_of_a_list_with_one_uid_are_both_refused() -> None:
    store = PodStore()
    store.replace([pod("cache"), pod("thief"), pod("batch", number=2)])
    good, left_out = believed(store.read().pods)
    assert names(good) == ["batch"]
    assert left_out == ("work/thief: another pod of the list has its UID",)


@pytest.mark.parametrize("static_uid", [STATIC, uid_of(1)])
def test_the_end_of_a_pod_that_claims_another_ones_group_forgets_nobody(static_uid: str) -> None:
    store = PodStore()
    store.replace([pod("cache", number=1), mirror("etcd", STATIC, number=2)])
    before = store.read().pods
    thief = mirror("thief", static_uid, number=3)
    store.put(thief)
    assert names(believed(store.read().pods)[0])[:1] == ["cache"]
    store.remove(thief.key)
    assert store.read().pods == before


CLAIMS = st.lists(
    st.tuples(
        st.integers(1, 6),  # its own UID
        st.sampled_from([None, STATIC, *map(uid_of, range(1, 7))]),  # what it claims to mirror
        st.booleans(),  # whether the kubelet has accepted it
        st.booleans(),  # whether it can be read
    ),
    unique_by=lambda claim: claim[0],
)


@given(CLAIMS)
def test_whatever_pods_claim_each_group_has_one_pod_at_most_and_its_own_first(
    claims: list[tuple[int, str | None, bool, bool]],
) -> None:
    pods: list[Pod | OddPod] = []
    for number, static_uid, is_accepted, is_odd in claims:
        value = written("x", number=number, **(mirror_of(static_uid) if static_uid else {}))
        value = accepted(value) if is_accepted else value
        pods.append(take_pod({**value, "spec": 3} if is_odd else value))
    good, left_out = believed(pods)
    assert len({one.uid for one in good}) == len(good)
    assert len(good) + len(left_out) == len(pods)
    keys = {one.key for one in pods}
    for one in good:
        assert one.uid == one.key or (one.uid not in keys and one.accepted)
    ordinary = [p for p in pods if isinstance(p, Pod) and p.uid == p.key]
    assert set(map(id, ordinary)) <= set(map(id, good)), "no ordinary pod is ever refused"
