"""The doctor looks pods up once, and names what a pause or a limit would meet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pod_tree import PodNode
from pods import mirror_of, uid_of, written

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.doctor.configuration import examine_config
from stallward.actuator.doctor.finding import PodsFound
from stallward.actuator.latency.config import PrometheusLatency
from stallward.actuator.targets.config import KubernetesConfig
from stallward.kubernetes.pod_findings import try_pods
from stallward.kubernetes.store import PodSource
from stallward.kubernetes.watcher import make_source


class Cluster:
    """A node with pods, and the file that lists them."""

    def __init__(self, folder: Path) -> None:
        self.node = PodNode(folder, slots=2, protected_is_pod=True)
        self._path = folder / "pods.json"
        self.listed: list[Any] = []
        kubernetes = KubernetesConfig(source="file", path=self._path)
        self.config: DaemonConfig = replace(self.node.config, kubernetes=kubernetes)
        self.write()

    def add(self, app: str, number: int, **container: Any) -> str:
        pod = written(app, number=number)
        pod["spec"]["containers"][0].update(container)
        self.listed.append(pod)
        self.write()
        return self.node.make(f"kubepods/besteffort/pod{uid_of(number)}")

    def write(self) -> None:
        self._path.write_text(json.dumps({"items": self.listed}))

    def said(self) -> dict[str, tuple[str, str]]:
        found = try_pods(self.config, {})
        return {one.name: (one.state, one.why) for one in found.findings}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    made.node.close()
    return made


def test_it_says_which_pod_each_place_would_have(cluster: Cluster) -> None:
    state, why = cluster.said()["pod of protected"]
    assert state == "degraded"
    assert "no pod with selector app=app runs here now" in why
    app = cluster.add("app", 1)
    cluster.add("batch", 2)
    said = cluster.said()
    assert said["pod of protected"] == ("works", f"work/app, {app}")
    assert said["pod of b0"][1].startswith("work/batch, kubepods/besteffort/pod")
    assert said["pod of b1"] == ("works", "no pod now")
    assert said["source of pods"] == ("works", str(cluster.config.kubernetes.path))
    assert len(said) == 4


def test_it_names_pods_that_are_left_out(cluster: Cluster) -> None:
    cluster.add("app", 1)
    group = cluster.add("batch", 2)
    thief = written("batch", number=3, **mirror_of(uid_of(1)))
    cluster.listed += [
        None,
        thief,
        {**written("new", number=4), "status": {"qosClass": "Elastic"}},
    ]
    cluster.write()
    said = cluster.said()
    state, why = said["pods left out"]
    assert (state, why[:2]) == ("degraded", "3:")
    for name in ("a pod without a name", "work/batch: an annotation names", "work/new: "):
        assert name in why
    assert said["pod of b0"] == ("works", f"work/batch, {group}")


def test_it_lists_all_pods_of_a_slot_that_they_share(cluster: Cluster) -> None:
    shared = tuple(
        replace(slot, pod=replace(slot.pod, group_by="all"))
        for slot in cluster.config.background[:1]
        if slot.pod is not None
    )
    cluster.config = replace(cluster.config, background=shared)
    groups = [cluster.add("batch", number) for number in (2, 3)]
    said = cluster.said()
    assert said["pod of b0"] == ("works", "; ".join(f"work/batch, {group}" for group in groups))
    assert "slots" not in said


def test_it_counts_pods_without_a_place(cluster: Cluster) -> None:
    for number in range(1, 4):
        cluster.add("app", number)
        cluster.add("batch", 10 + number)
    said = cluster.said()
    assert "1 more pods match a slot" in said["slots"][1]
    assert "2 more pods match it" in said["protected"][1]


@pytest.mark.parametrize(
    ("probe", "says"),
    [
        ({}, "its probes and its grace period allow pauses of 0.5 s, at most 50% of the time"),
        (
            {"timeoutSeconds": 4},
            "its probes and its grace period allow pauses of 3.5 s, at most 88% of the time",
        ),
        ({"failureThreshold": 1}, "it is never paused, only limited: a pause of 0.2 s could"),
    ],
)
def test_it_warns_where_a_pause_could_restart_a_pod(
    cluster: Cluster, probe: dict[str, int], says: str
) -> None:
    cluster.add("batch", 1, livenessProbe={"httpGet": {"path": "/", "port": 80}, **probe})
    cluster.add("batch", 2, livenessProbe={"timeoutSeconds": 6})
    warned = [why for name, (_, why) in cluster.said().items() if name.startswith("pause of")]
    assert len(warned) == 1
    assert warned[0].startswith(says)


def test_a_slot_that_is_paused_for_less_asks_less_of_its_pods(cluster: Cluster) -> None:
    slots = tuple(replace(slot, max_pause_s=2.5) for slot in cluster.config.background)
    cluster.config = replace(cluster.config, background=slots)
    cluster.add("batch", 1, livenessProbe={"timeoutSeconds": 3})
    assert not any("pause" in name for name in cluster.said())
    cluster.add("batch", 2, livenessProbe={"timeoutSeconds": 2})
    assert "(max_pause_s is 2.5 s)" in cluster.said()["pause of work/batch"][1]


def test_it_says_that_a_short_grace_period_bounds_pauses(cluster: Cluster) -> None:
    cluster.add("batch", 1)
    cluster.listed[0]["spec"]["terminationGracePeriodSeconds"] = 4
    cluster.write()
    (found,) = [one for one in try_pods(cluster.config, {}).findings if "pause" in one.name]
    assert "its grace period allow pauses of 2 s, at most 100% of the time" in found.why
    assert "and its terminationGracePeriodSeconds 10, to allow more" in found.next_step


def test_the_pod_of_the_application_is_asked_for_its_latencies(cluster: Cluster) -> None:
    latency = PrometheusLatency(port=1, metric="x_seconds")
    cluster.config = replace(cluster.config, latency=latency)

    def said() -> str:
        findings, _ = examine_config(cluster.config)
        (found,) = [
            one for one in findings if one.name == "latency from port 1 of the protected pod"
        ]
        assert found.state == "degraded"
        return found.why

    assert said() == "no pod with an address now"
    cluster.add("app", 1)
    assert said() == "no pod with an address now"
    cluster.add("app", 2)
    for pod in cluster.listed:
        pod["status"]["podIP"] = "127.0.0.1"
    cluster.write()
    assert "refuses" in said(), "it was asked"


def test_it_says_whose_memory_cannot_be_swapped(cluster: Cluster) -> None:
    group = cluster.add("batch", 1)
    cluster.add("batch", 2)
    cluster.node.make(f"{group}/9f3c", **{"memory.swap.max": "0\n"})
    warned = [why for name, (_, why) in cluster.said().items() if name.startswith("limit of")]
    assert len(warned) == 1
    assert "file pages only" in warned[0]


def test_what_cannot_be_looked_up_is_an_obstacle(cluster: Cluster) -> None:
    (cluster.config.kubernetes.path or Path()).unlink()
    _, obstacles = examine_config(cluster.config)
    assert any("cannot be read" in obstacle for obstacle in obstacles)
    nowhere = replace(cluster.config, kubernetes=KubernetesConfig(node="node-7"))
    found = try_pods(nowhere, {})
    assert "does not run in a cluster" in found.obstacle
    assert found.findings[0].state == "missing"


def test_one_look_gives_the_places_and_the_address(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[KubernetesConfig] = []

    def counted(config: KubernetesConfig, environment: Mapping[str, str]) -> PodSource:
        looks.append(config)
        return make_source(config, environment)

    monkeypatch.setattr("stallward.kubernetes.pod_findings.make_source", counted)
    latency = PrometheusLatency(port=1, metric="x_seconds")
    cluster.config = replace(cluster.config, latency=latency)
    cluster.add("app", 1)
    cluster.listed[0]["status"]["podIP"] = "127.0.0.1"
    cluster.write()
    findings, _ = examine_config(cluster.config)
    assert len(looks) == 1
    said = {one.name: one.why for one in findings}
    assert said["pod of protected"].startswith("work/app, ")
    assert said["latency from port 1 of the protected pod"] != "no pod with an address now"


def test_a_configuration_without_pods_asks_nobody(cluster: Cluster) -> None:
    slots = [
        replace(slot, pod=None, group=f"b{i}") for i, slot in enumerate(cluster.config.background)
    ]
    protected = replace(cluster.config.applications[0], pod=None, group="app")
    plain = replace(
        cluster.config,
        protected=protected,
        background=tuple(slots),
        kubernetes=KubernetesConfig(),
    )
    assert try_pods(plain, {}) == PodsFound()
