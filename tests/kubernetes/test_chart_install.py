"""The chart on a real cluster: installed by Helm, its pod under the kubelet, and uninstalled."""

from __future__ import annotations

from collections.abc import Iterator

import programs
import pytest
from control_plane import ControlPlane
from kubelet import DAEMON_IMAGE, KUBECTL_IMAGE
from node_daemon import CHART, LIMIT_BYTES, MIB, deployment, pod_of
from node_space import wait_for

pytestmark = pytest.mark.kubernetes

NAMESPACE = "guard"
POD = ("-n", NAMESPACE, "exec", "ds/stallward", "-c", "stallward", "--")
REPOSITORY, TAG = DAEMON_IMAGE.split(":")


def helm(cluster: ControlPlane, *words: str) -> str:
    """Run Helm in the namespace of the chart; return what it printed."""
    where = (f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NAMESPACE}")
    return cluster.space.run(programs.HELM, *words, *where, timeout_s=240.0)


@pytest.fixture(scope="module")
def notes(cluster: ControlPlane) -> Iterator[str]:
    """What Helm prints when it has installed the chart, which changes things from the start."""
    cluster.apply(deployment("shop", role="protected"), deployment("batch", role="background"))
    pod_of(cluster, "shop")
    level = {"pod-security.kubernetes.io/enforce": "privileged"}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": level}}
    )
    values = {
        "image.repository": REPOSITORY,
        "image.tag": TAG,
        "uninstall.image": KUBECTL_IMAGE,
        "config.control.dry_run": "false",
    }
    settings = [f"--set={key}={value}" for key, value in values.items()]
    yield helm(cluster, "install", "stallward", str(CHART), *settings)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def daemon_log(cluster: ControlPlane) -> str:
    """What the daemon has written; empty until its pod runs."""
    return cluster.kubectl("-n", NAMESPACE, "logs", "ds/stallward", "-c", "stallward", check=False)


def test_the_chart_is_installed_used_and_removed(cluster: ControlPlane, notes: str) -> None:
    assert "A daemon runs on each chosen node." in notes
    assert "stallward.io/role: protected" in notes
    rollout = ("rollout", "status", "ds/stallward", "--timeout=90s")
    said = cluster.kubectl("-n", NAMESPACE, *rollout, check=False, timeout_s=120.0)
    assert "successfully rolled out" in said, cluster.kubectl(
        "-n", NAMESPACE, "describe", "pods"
    ) + daemon_log(cluster)
    pod = pod_of(cluster, "batch")
    place = f"background-1 is default/{pod.name} now"
    assert wait_for(lambda: place in daemon_log(cluster)), daemon_log(cluster)
    usual_bytes = pod.limit_bytes
    doctor = ("stallward", "doctor", "--config", "/etc/stallward/stallward.toml")
    assert f"default/{pod.name}" in cluster.kubectl(*POD, *doctor, check=False)
    hold = ("apply", "--pause", "0", "--limit", f"0={LIMIT_BYTES // MIB}", "--lease", "60")
    cluster.kubectl(*POD, "stallward", "ctl", *hold)
    assert wait_for(lambda: pod.held), cluster.kubectl(*POD, "stallward", "ctl", "status")
    # The hook ends the daemon before its rights go, and it puts everything back.
    helm(cluster, "uninstall", "stallward")
    assert not pod.frozen
    assert pod.limit_bytes == usual_bytes
    kinds = (
        "daemonsets,jobs,serviceaccounts,roles,rolebindings,configmaps,services,networkpolicies"
    )
    left = cluster.kubectl("-n", NAMESPACE, "get", kinds, "-o", "name")
    assert "stallward" not in left, left
    assert "stallward" not in cluster.kubectl(
        "get", "clusterroles,clusterrolebindings", "-o", "name"
    )
