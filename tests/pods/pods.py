"""Pods for tests, as the API writes them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from stallward.actuator.kernel.paths import Paths
from stallward.actuator.targets.qos import Qos
from stallward.kubernetes.pod import Pod, parse_pod


def uid_of(number: int) -> str:
    """A UID for a number."""
    return str(uuid.UUID(int=number + (4 << 76)))


def written(
    name: str,
    *,
    number: int = 1,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    qos: Qos = Qos.BEST_EFFORT,
    **metadata: Any,
) -> dict[str, Any]:
    """A pod as the API writes it."""
    return {
        "kind": "Pod",
        "metadata": {
            "namespace": "work",
            "name": name,
            "uid": uid_of(number),
            "creationTimestamp": f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z",
            "labels": {"app": name} if labels is None else labels,
            "annotations": annotations or {},
            "resourceVersion": str(number),
            **metadata,
        },
        "spec": {"containers": [{"name": "one"}]},
        "status": {"phase": "Running", "qosClass": qos.value},
    }


def mirror_of(static_uid: str) -> dict[str, Any]:
    """The metadata by which the mirror pod of a static pod is known, and which anybody may write."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node-7", "uid": "1", "controller": True}
    annotations = {f"kubernetes.io/config.{key}": static_uid for key in ("hash", "mirror")}
    return {"annotations": annotations, "ownerReferences": [owner]}


def accepted(value: dict[str, Any]) -> dict[str, Any]:
    """A pod of which the kubelet has written the status."""
    return {**value, "status": {**value["status"], "startTime": "2026-01-01T00:00:00Z"}}


def pod(name: str, **changes: Any) -> Pod:
    """A pod."""
    return parse_pod(written(name, **changes))


def node_without_groups(folder: Path) -> Paths:
    """A node with cgroup v2 and no groups."""
    paths = Paths(proc=folder / "proc", cgroup=folder / "cgroup")
    paths.cgroup.mkdir()
    (paths.cgroup / "cgroup.controllers").write_text("memory\n")
    (paths.proc / "self").mkdir(parents=True)
    (paths.proc / "self/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    return paths
