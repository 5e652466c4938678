"""The doctor compares when the kubelet evicts with what the daemon keeps free."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeApi
from pod_tree import PodNode

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.doctor.configuration import examine_config
from stallward.actuator.doctor.finding import Finding
from stallward.actuator.targets.config import KubernetesConfig
from stallward.agent.desired import MIB
from stallward.kubernetes.errors import KubeletConfigError
from stallward.kubernetes.kubelet_findings import (
    parse_flags,
    settings_of,
    threshold_bytes,
    try_kubelet,
)

GIB = 1024 * MIB
CONFIG = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {memory.available: 5%, nodefs.available: 10%}
"""


class Kubelet:
    """A node with pods, 1,000 MiB of memory and a kubelet."""

    def __init__(self, folder: Path) -> None:
        node = PodNode(folder, protected_is_pod=True)
        node.close()
        self.proc, self.root = folder / "proc", node.root
        self.user = 0
        (self.proc / "meminfo").write_text("MemTotal: 1024000 kB\nMemAvailable: 512000 kB\n")
        pods = KubernetesConfig(source="file", path=folder / "pods.json")
        self.config: DaemonConfig = replace(node.config, kubernetes=pods)

    def run(self, *arguments: str, **files: str) -> None:
        """Start it with files below its root, whose names have ``_`` for ``/``."""
        process = self.proc / "814"
        process.mkdir()
        (process / "comm").write_text("kubelet\n")
        (process / "status").write_text("Name:\tkubelet\nUid:" + f"\t{self.user}" * 4 + "\n")
        (process / "cmdline").write_text("\0".join(["/usr/bin/kubelet", *arguments, ""]))
        for name, content in files.items():
            path = process / "root" / name.replace("__", "/").replace("_YAML", ".yaml")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    def keep(self, size: int) -> None:
        node = replace(self.config.node, keep_available_bytes=size)
        self.config = replace(self.config, node=node)

    def findings(self, environment: dict[str, str] | None = None) -> dict[str, Finding]:
        return {one.name: one for one in try_kubelet(self.config, environment or {})}


@pytest.fixture
def kubelet(tmp_path: Path) -> Kubelet:
    return Kubelet(tmp_path)


def test_without_pods_and_a_kubelet_there_is_nothing_to_say(kubelet: Kubelet) -> None:
    slots = [
        replace(slot, pod=None, group=f"b{i}") for i, slot in enumerate(kubelet.config.background)
    ]
    protected = replace(kubelet.config.applications[0], pod=None, group="app")
    kubelet.config = replace(
        kubelet.config,
        protected=protected,
        background=tuple(slots),
        kubernetes=KubernetesConfig(),
    )
    assert kubelet.findings() == {}


def test_it_names_the_threshold_above_what_is_kept_free(kubelet: Kubelet) -> None:
    kubelet.run("--config=/etc/kubelet.yaml", etc__kubelet_YAML=CONFIG)
    said = kubelet.findings()["eviction"]
    assert said.state == "degraded"
    assert "evicts pods when 50 MiB are available (evictionHard memory.available<5%" in said.why
    assert "/etc/kubelet.yaml" in said.why
    assert "partition keeps 30 MiB of the zone free" in said.why
    assert said.next_step.startswith(f"Set node.keep_available_bytes to {63 * MIB} or more")
    kubelet.keep(63 * MIB)
    assert kubelet.findings()["eviction"].state == "works"


def test_the_default_threshold_holds_where_nothing_is_said(kubelet: Kubelet) -> None:
    kubelet.run()
    assert "memory.available<100Mi in its command line" in kubelet.findings()["eviction"].why


def test_who_calls_himself_kubelet_is_not_believed(kubelet: Kubelet) -> None:
    """What it names would be read with root's rights."""
    kubelet.user = 12345
    kubelet.run("--config=/etc/kubelet.yaml", etc__kubelet_YAML=CONFIG)
    said = next(iter(kubelet.findings().values()))
    assert "no process that can be seen is a kubelet" in said.why


@pytest.mark.parametrize("kind", ["pipe", "writable"])
def test_the_kubelets_file_is_a_file_that_only_root_can_have_written(
    kubelet: Kubelet, kind: str
) -> None:
    kubelet.run("--config=/etc/kubelet.yaml", etc__kubelet_YAML=CONFIG)
    file = kubelet.proc / "814/root/etc/kubelet.yaml"
    if kind == "pipe":
        file.unlink()
        os.mkfifo(file)
    elif os.geteuid() == 0:
        file.chmod(0o666)
    else:
        pytest.skip("only root is asked to doubt")
    why = next(iter(kubelet.findings().values())).why
    assert ("not a regular file" if kind == "pipe" else "others may have written it") in why


@pytest.mark.parametrize("way", ["absolute", "upwards"])
def test_links_in_what_a_process_sees_do_not_lead_out_of_it(
    kubelet: Kubelet, tmp_path: Path, way: str
) -> None:
    """Any root in a pod may call its process kubelet, and make links to files of the node."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.conf").write_text('evictionHard: {memory.available: "1Gi"}')
    kubelet.run("--config=/etc/kubelet.yaml", "--config-dir=/etc/parts", etc__other_YAML=CONFIG)
    etc = kubelet.proc / "814/root/etc"
    base = outside if way == "absolute" else Path(os.path.relpath(outside, etc))
    (etc / "parts").symlink_to(base)
    (etc / "kubelet.yaml").symlink_to("/etc/other.yaml")
    assert "memory.available<5%" in kubelet.findings()["eviction"].why, "its own files are read"
    (etc / "parts").unlink()
    (etc / "parts").mkdir()
    (etc / "parts/a.conf").symlink_to(Path("..") / base / "secret.conf")
    assert "memory.available<5%" in kubelet.findings()["eviction"].why
    (etc / "kubelet.yaml").unlink()
    (etc / "kubelet.yaml").symlink_to(base / "secret.conf")
    assert "/etc/kubelet.yaml cannot be read" in kubelet.findings()["kubelet"].why


def test_flags_go_over_the_file_and_soft_thresholds_count(kubelet: Kubelet) -> None:
    kubelet.run(
        "--config=/var/lib/kubelet/config.yaml",
        "--eviction-soft",
        "memory.available<300Mi,nodefs.available<10%",
        "--eviction-hard=nodefs.available<10%",
        var__lib__kubelet__config_YAML=CONFIG,
    )
    assert "300 MiB are available (evictionSoft" in kubelet.findings()["eviction"].why


def test_parts_of_the_configuration_are_merged(kubelet: Kubelet) -> None:
    kubelet.run(
        "--config",
        "/etc/kubelet.yaml",
        "--config-dir=/etc/parts",
        etc__kubelet_YAML=CONFIG,
        **{"etc__parts__10.conf": 'evictionHard: {memory.available: "1Gi"}'},
        **{"etc__parts__20.conf": "featureGates: {MemoryQoS: true}"},
    )
    found = kubelet.findings()
    assert "memory.available<1Gi" in found["eviction"].why
    assert "memory.high of containers (featureGates MemoryQoS)" in found["MemoryQoS"].why


def test_all_pods_together_are_evicted_before_the_whole_machine_is_short(
    kubelet: Kubelet,
) -> None:
    kubelet.run("--eviction-hard=memory.available<20Mi")
    assert list(kubelet.findings()) == ["eviction"]
    kubelet.root.joinpath("kubepods").mkdir(exist_ok=True)
    (kubelet.root / "kubepods" / "memory.max").write_text(f"{800 * MIB}\n")
    said = kubelet.findings()["eviction of pods together"]
    assert "all pods may hold 800 MiB (kubepods)" in said.why
    assert 'node.zone = "kubepods"' in said.next_step
    assert f"keep_available_bytes to {225 * MIB} or more" in said.next_step
    kubelet.config = replace(kubelet.config, node=replace(kubelet.config.node, zone="kubepods"))
    inside = kubelet.findings()
    assert list(inside) == ["eviction"]
    assert "partition keeps 24 MiB" in inside["eviction"].why, "of the zone, not of the machine"


def test_a_configuration_that_cannot_be_read_is_said_with_the_next_step(kubelet: Kubelet) -> None:
    kubelet.run("--config=/etc/kubelet.yaml")
    said = kubelet.findings()["kubelet"]
    assert said.state == "degraded"
    assert "/etc/kubelet.yaml cannot be read" in said.why
    assert "CAP_SYS_PTRACE" in said.next_step
    assert "get nodes/proxy (rbac.nodesProxy of the chart)" in said.next_step


def test_where_pods_are_followed_a_kubelet_that_is_not_seen_is_said(kubelet: Kubelet) -> None:
    said = kubelet.findings()["kubelet"]
    assert (said.area, said.state) == ("configuration", "degraded")
    assert said.why == (
        "no process that can be seen is a kubelet (in k3s it is part of another program), and the "
        "API server is not asked where pods come from a file, so it is not known when it evicts"
    )
    assert "evictionHard" in said.next_step
    assert "node.keep_available_bytes" in said.next_step


@pytest.mark.parametrize("content", ["[1]", "{", "evictionHard: 3", "\tx: 1", "featureGates: [1]"])
def test_a_file_that_is_none_of_a_kubelet_is_said(kubelet: Kubelet, content: str) -> None:
    kubelet.run("--config", "/etc/kubelet.yaml", etc__kubelet_YAML=content)
    assert kubelet.findings()["kubelet"].state == "degraded"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    server = FakeApi().start()
    yield server
    server.stop()


def test_the_api_is_asked_first_and_goes_without_the_right(kubelet: Kubelet, api: FakeApi) -> None:
    kubelet.run("--eviction-hard=memory.available<20Mi")
    server = KubernetesConfig(server=api.url, node="node-7")
    kubelet.config = replace(kubelet.config, kubernetes=server)
    assert kubelet.findings()["eviction"].state == "works", "refused: the process says it"
    told: dict[str, Any] = {"evictionHard": {"memory.available": "500Mi"}}
    api.kubelet = {"kubeletconfig": told}
    assert "memory.available<500Mi in configz" in kubelet.findings()["eviction"].why
    assert api.requests[-1]["path"] == "/api/v1/nodes/node-7/proxy/configz"
    api.kubelet = ["nothing"]
    assert kubelet.findings()["eviction"].state == "works"


def test_where_the_kubelet_gives_the_pods_it_is_asked_itself(
    kubelet: Kubelet, api: FakeApi
) -> None:
    server = KubernetesConfig(source="kubelet", server=api.url)
    kubelet.config = replace(kubelet.config, kubernetes=server)
    assert "the kubelet itself does not say" in kubelet.findings()["kubelet"].why
    api.kubelet = {"kubeletconfig": {"evictionHard": {"memory.available": "500Mi"}}}
    assert "memory.available<500Mi in configz" in kubelet.findings()["eviction"].why
    assert api.requests[-1]["path"] == "/configz"


def test_a_kubelet_inside_another_program_is_known_by_the_api_only(
    kubelet: Kubelet, api: FakeApi
) -> None:
    server = KubernetesConfig(server=api.url, node="node-7")
    kubelet.config = replace(kubelet.config, kubernetes=server)
    process = kubelet.proc / "914"
    process.mkdir()
    (process / "comm").write_text("k3s-server\n")
    said = kubelet.findings()["kubelet"]
    assert said.state == "degraded"
    assert "the API server does not say what it is told" in said.why
    assert "nodes/proxy" in said.why, "it has the server's own words"
    assert said.why.endswith(", so it is not known when it evicts")
    assert "get nodes/proxy (rbac.nodesProxy of the chart)" in said.next_step
    assert "list and watch pods" not in said.next_step
    api.kubelet = {"kubeletconfig": {"evictionHard": {"memory.available": "500Mi"}}}
    assert set(kubelet.findings()) == {"eviction"}


def test_the_doctor_says_it(kubelet: Kubelet) -> None:
    kubelet.run("--eviction-hard=memory.available<500Mi")
    (kubelet.config.kubernetes.path or Path()).write_text(json.dumps({"items": []}))
    findings, _ = examine_config(kubelet.config)
    assert any(one.name == "eviction" and one.state == "degraded" for one in findings)


def test_who_writes_any_hard_threshold_has_no_other_default() -> None:
    only_disk = {"evictionHard": {"nodefs.available": "10%"}}
    assert settings_of(only_disk, {}, "x").hard == ""
    merged = {**only_disk, "mergeDefaultEvictionSettings": True}
    assert settings_of(merged, {}, "x").hard == "100Mi"
    assert settings_of({}, {}, "x").hard == "100Mi"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("100Mi", 100 * MIB),
        ("1.5Gi", 1.5 * GIB),
        ("1G", 10**9),
        ("500k", 500_000),
        ("2Ki", 2048),
        ("1e3", 1000),
        ("7", 7),
        ("5%", 50 * MIB),
        ("0%", 0),
        ("100%", 0),
        ("1e999%", 2**62),
        ("1e999Gi", 2**62),
        ("", 0),
    ],
)
def test_a_threshold_is_a_quantity_or_a_share(text: str, size: float) -> None:
    assert threshold_bytes(text, 1000 * MIB) == size


@pytest.mark.parametrize("text", ["x", "-1", "1Q", "5 %x", "%", "1 Mi", "nan", "5Mi%"])
def test_another_threshold_is_refused(text: str) -> None:
    with pytest.raises(KubeletConfigError):
        threshold_bytes(text, 1000 * MIB)


def test_flags_have_their_values_behind_or_after_them() -> None:
    line = "kubelet\0--a=1\0--b\0two\0--c\0--d=x=y\0rest\0"
    assert parse_flags(line) == {"a": "1", "b": "two", "c": "", "d": "x=y"}


def test_of_flags_that_come_twice_all_pairs_count(kubelet: Kubelet) -> None:
    kubelet.run(
        "--eviction-hard=memory.available<200Mi",
        "--eviction-hard",
        "nodefs.available<10%",
        "--feature-gates=MemoryQoS=true",
        "--feature-gates=Other=true",
        "--config=/etc/old.yaml",
        "--config=/etc/kubelet.yaml",
        etc__kubelet_YAML=CONFIG,
    )
    said = kubelet.findings()
    assert "evicts pods when 200 MiB are available" in said["eviction"].why
    assert "MemoryQoS" in said
