"""The kubelet's groups are known by their names, in every spelling, and found on a tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.errors import KubeletGroupError
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.targets.kubelet_groups import (
    Driver,
    KubeletGroup,
    Level,
    check_slot_group,
    find_pod_group,
    parse_group,
    pod_groups,
)
from stallward.actuator.targets.qos import Qos

UID = "0f0c5d2e-7c4b-4a52-9d37-3b5f0a1f4c11"
ID = "9f3c" * 16
UIDS = st.uuids().map(str) | st.uuids().map(lambda uuid: uuid.hex)
PARENTS = st.sampled_from(
    ["", "kubelet", "docker/abc/kubelet", "kubelet.slice", "a.slice/a-b.slice"]
)
CONTAINERS = st.sampled_from(["", ID, f"crio-{ID}", f"crio-conmon-{ID}"])


@pytest.mark.parametrize(
    ("name", "level", "driver", "qos", "uid"),
    [
        ("kubepods.slice", Level.ALL, Driver.SYSTEMD, None, ""),
        ("kubepods", Level.ALL, Driver.CGROUPFS, None, ""),
        (
            "kubepods.slice/kubepods-besteffort.slice",
            Level.QOS,
            Driver.SYSTEMD,
            Qos.BEST_EFFORT,
            "",
        ),
        ("kubepods/burstable", Level.QOS, Driver.CGROUPFS, Qos.BURSTABLE, ""),
        (
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
            f"{UID.replace('-', '_')}.slice",
            Level.POD,
            Driver.SYSTEMD,
            Qos.BURSTABLE,
            UID,
        ),
        (
            f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice",
            Level.POD,
            Driver.SYSTEMD,
            Qos.GUARANTEED,
            UID,
        ),
        (f"kubepods/besteffort/pod{UID}", Level.POD, Driver.CGROUPFS, Qos.BEST_EFFORT, UID),
        (f"kubepods/pod{UID}", Level.POD, Driver.CGROUPFS, Qos.GUARANTEED, UID),
        (
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
            f"{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope",
            Level.CONTAINER,
            Driver.SYSTEMD,
            Qos.BURSTABLE,
            UID,
        ),
        (
            f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope/container",
            Level.CONTAINER,
            Driver.SYSTEMD,
            Qos.GUARANTEED,
            UID,
        ),
        (
            f"kubepods/burstable/pod{UID}/{ID}",
            Level.CONTAINER,
            Driver.CGROUPFS,
            Qos.BURSTABLE,
            UID,
        ),
        (
            "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
            f"kubelet-kubepods-besteffort-pod{UID.replace('-', '_')}.slice",
            Level.POD,
            Driver.SYSTEMD,
            Qos.BEST_EFFORT,
            UID,
        ),
    ],
)
def test_the_spellings_of_kubelets_and_runtimes_are_known(
    name: str, level: Level, driver: Driver, qos: Qos | None, uid: str
) -> None:
    group = parse_group(name)
    assert group is not None
    assert (group.level, group.driver, group.qos, group.uid) == (level, driver, qos, uid)
    assert group.name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "system.slice/containerd.service",
        "edge/kubepodsx",
        "kubepods/burstable/other",
        f"pod{UID}",
        "kubepods.slice/other.scope",
        "a.slice/b-kubepods.slice",
        "kubepods-burstable.slice",
    ],
)
def test_other_groups_are_not_the_kubelets(name: str) -> None:
    assert parse_group(name) is None
    check_slot_group(name)


@given(UIDS, st.sampled_from(Qos), st.sampled_from(Driver), PARENTS, CONTAINERS)
def test_a_name_says_what_it_was_made_of(
    uid: str, qos: Qos, driver: Driver, parent: str, container: str
) -> None:
    group = KubeletGroup(
        level=Level.CONTAINER if container else Level.POD,
        driver=driver,
        parent=parent,
        qos=qos,
        uid=uid,
        container=container,
    )
    assert parse_group(group.name) == group


@given(st.text(alphabet="kubepods-_/.slice0a", max_size=60) | st.text(max_size=60))
def test_what_is_known_is_spelt_as_it_was_given(name: str) -> None:
    group = parse_group(name)
    if group is not None and group.level is not Level.CONTAINER:
        assert parse_group(group.name) == group


def test_every_pod_group_is_found_among_those_of_other_pods() -> None:
    for name in pod_groups(UID):
        others = {other.replace(UID[:4], "ffff") for other in pod_groups(UID)}
        tree = {name, *others}
        assert find_pod_group(UID, tree.__contains__) == name
    assert find_pod_group(UID, others.__contains__) is None


def test_a_tree_below_another_group_is_found_only_if_it_is_named() -> None:
    name = f"docker/abc/kubelet/kubepods/besteffort/pod{UID}"
    assert find_pod_group(UID, {name}.__contains__) is None
    assert find_pod_group(UID, {name}.__contains__, "docker/abc/kubelet") == name


@pytest.mark.parametrize("kind", ["v2", "hybrid"])
@pytest.mark.parametrize("driver", Driver)
def test_a_pod_is_found_on_real_folders_of_both_kinds_of_node(
    tmp_path: Path, kind: str, driver: Driver
) -> None:
    roots = [tmp_path] if kind == "v2" else [tmp_path / "memory", tmp_path / "unified"]
    hierarchy = Hierarchy(kind=kind, memory_root=roots[0], unified_root=roots[-1])  # type: ignore[arg-type]
    name = KubeletGroup(level=Level.POD, driver=driver, qos=Qos.BURSTABLE, uid=UID).name
    for root in roots:
        assert find_pod_group(UID, lambda group: hierarchy.group(group).exists()) is None
        (root / name).mkdir(parents=True)
    assert find_pod_group(UID, lambda group: hierarchy.group(group).exists()) == name


@pytest.mark.parametrize("driver", Driver)
@pytest.mark.parametrize("qos", [None, Qos.BURSTABLE, Qos.BEST_EFFORT])
def test_what_the_kubelet_sets_itself_is_no_slot(driver: Driver, qos: Qos | None) -> None:
    level = Level.ALL if qos is None else Level.QOS
    name = KubeletGroup(level=level, driver=driver, qos=qos).name
    with pytest.raises(KubeletGroupError, match="Select pods"):
        check_slot_group(name)
    pod = KubeletGroup(level=Level.POD, driver=driver, qos=qos or Qos.GUARANTEED, uid=UID)
    check_slot_group(pod.name)
    with pytest.raises(KubeletGroupError, match="limits the kubelet sets again"):
        check_slot_group(f"{pod.name}/{ID}")
