"""What the doctor and the documentation tell a user of the chart to set can be set."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from helm_chart import ROOT, configuration, needs_helm, pod_of, refusal, render
from unit_settings import config_of, settings

pytestmark = [
    needs_helm,
    pytest.mark.reaches(
        "deploy/",
        "actuator/stallward/actuator/doctor/",
        "packages/kubernetes/stallward/kubernetes/",
        "docs/how-to/run-in-kubernetes.md",
    ),
]

DOCTOR = ROOT / "actuator/stallward/actuator/doctor"
PODS = ROOT / "packages/kubernetes/stallward/kubernetes"
HOW_TO = ROOT / "docs/how-to/run-in-kubernetes.md"
_NAMED = re.compile(r"\b((?:node|guard|control|protected|pod|latency|background)\.[a-z_]+)")

_SLOT = ("background[0].name=background", "background[0].pod.role=background")
_PORT = ("latency.source=prometheus", "latency.port=9100", "latency.metric=x")
_WORK = ("source=prometheus", "url=http://10.0.0.1:9100/m", "metric=x", "allow_remote=true")
REMEDIES: dict[str, tuple[str, ...]] = {
    "node.keep_available_bytes": ("node.keep_available_bytes=235929600",),
    "node.zone": ("node.zone=kubepods.slice",),
    "node.page_cache": ("node.page_cache=auto",),
    "guard.max_pause_s": ("guard.max_pause_s=2",),
    "control.dry_run": ("control.dry_run=false",),
    "control.foreign_wait_s": ("control.foreign_wait_s=30",),
    "protected.pod": ("protected.pod.namespace=shop", "protected.pod.selector=app=cache"),
    "pod.slots": (*_SLOT, "background[0].pod.slots=3"),
    "pod.group_by": (*_SLOT, "background[0].pod.group_by=qos"),
    "latency.path": ("latency.source=lines", "latency.path=/var/log/app/access.log"),
    "latency.port": _PORT,
    "background.work": (*_SLOT, *(f"background[0].work.{one}" for one in _WORK)),
}
"""By each setting that is named somewhere: what is given to ``--set config.…``."""


def named() -> set[str]:
    """The settings that the doctor's texts and the documentation name."""
    texts = [HOW_TO.read_text()]
    for file in (*DOCTOR.glob("*.py"), *PODS.glob("*_findings.py")):
        tree = ast.parse(file.read_text())
        texts += [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
    found = {name for text in texts for name in _NAMED.findall(text)}
    return {name for name in found if not name.endswith(".md")}


def value_at(table: Any, key: str) -> Any:
    """The value at a key like ``background[0].pod.slots``."""
    for part in re.findall(r"[a-z_]+|\d+", key):
        table = table[int(part) if part.isdigit() else part]
    return table


def test_every_setting_that_is_named_is_tried_here() -> None:
    assert "node.keep_available_bytes" in named()
    assert named() - REMEDIES.keys() == set()


@pytest.mark.parametrize("name", REMEDIES)
def test_a_setting_that_is_named_reaches_the_daemon(tmp_path: Path, name: str) -> None:
    given = REMEDIES[name]
    chart = render(tmp_path, {}, settings=[f"config.{one}" for one in given])
    told = tomllib.loads(chart["ConfigMap"]["data"]["stallward.toml"])
    for one in given:
        key, _, value = one.partition("=")
        there = value_at(told, key)
        assert (str(there).lower() if isinstance(there, bool) else str(there)) == value
    assert configuration(chart).follows_pods, "the daemon takes it"


def test_a_file_of_values_may_keep_memory_available(tmp_path: Path) -> None:
    chart = render(tmp_path, {"config": {"node": {"keep_available_bytes": 3 << 30}}})
    assert configuration(chart).node.keep_available_bytes == 3 << 30
    assert configuration(chart).node.cgroup == Path("/host/cgroup"), "the chart's stays"


def test_counting_page_cache_hits_takes_the_rights_that_the_unit_gives(tmp_path: Path) -> None:
    def granted(mode: str) -> set[str]:
        chart = render(tmp_path, {"config": {"node": {"page_cache": mode}}})
        assert configuration(chart).node.page_cache == mode
        (daemon,) = pod_of(chart)["containers"]
        return {f"CAP_{one}" for one in daemon["securityContext"]["capabilities"]["add"]}

    unit = settings(config_of(node='page_cache = "auto"'))["CapabilityBoundingSet"]
    wanted = {name for line in unit for name in line.split()} | {"CAP_IPC_LOCK"}
    assert granted("auto") == granted("ebpf") == wanted
    assert wanted - granted("off") == {"CAP_BPF", "CAP_PERFMON", "CAP_DAC_READ_SEARCH"}


def test_the_right_to_ask_what_the_kubelet_is_told_is_given_on_request(tmp_path: Path) -> None:
    assert "rbac.nodesProxy" in (PODS / "kubelet_findings.py").read_text()
    plain = render(tmp_path, {})["ClusterRole"]["rules"]
    asked = render(tmp_path, {}, settings=["rbac.nodesProxy=true"])["ClusterRole"]["rules"]
    assert asked == [
        *plain, {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]}
    ]  # fmt: skip
    assert "nodes/proxy" not in str(plain)


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"keep_available_bytes": "225Mi"}, "keep_available_bytes"),
        ({"keep_available_bytes": -1}, "keep_available_bytes"),
        ({"page_cache": "on"}, "page_cache"),
        ({"cgroup": "/x"}, "cgroup"),
        ({"proc": "/x"}, "proc"),
    ],
    ids=str,
)
def test_what_is_wrong_for_the_node_is_refused_by_name(
    tmp_path: Path, node: dict[str, object], said: str
) -> None:
    assert said in refusal(tmp_path, {"config": {"node": node}})
