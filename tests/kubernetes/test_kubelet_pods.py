"""The daemon and pods that run under a real kubelet."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from control_plane import ControlPlane
from node_daemon import LIMIT_BYTES, MIB, deployment, node_daemon, pod_of, pods_of
from node_space import wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("applications")]


@pytest.fixture(scope="module")
def applications(cluster: ControlPlane) -> None:
    """A protected pod and one of background work, each of a deployment."""
    cluster.apply(deployment("shop", role="protected"), deployment("batch", role="background"))
    for app in ("shop", "batch"):
        pod_of(cluster, app)


def test_a_pod_is_paused_and_limited_and_restored_on_stop(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    pod = pod_of(cluster, "batch")
    usual_bytes = pod.limit_bytes
    assert usual_bytes > LIMIT_BYTES
    with node_daemon(cluster, tmp_path) as daemon:
        daemon.hold()
        assert wait_for(lambda: pod.held), daemon.log()
    assert not pod.frozen
    assert pod.limit_bytes == usual_bytes
    assert not daemon.journal.exists()
    assert pod_of(cluster, "batch").name == pod.name, "the kubelet did not replace it"


def test_a_pod_is_restored_whatever_is_killed(cluster: ControlPlane, tmp_path: Path) -> None:
    pod = pod_of(cluster, "batch")
    usual_bytes = pod.limit_bytes
    with node_daemon(cluster, tmp_path) as daemon:
        daemon.hold()
        assert wait_for(lambda: pod.held), daemon.log()
        loop = daemon.loop()
        os.kill(loop, signal.SIGKILL)  # the guardian restores
        assert wait_for(lambda: not pod.frozen and pod.limit_bytes == usual_bytes), daemon.log()
        assert wait_for(lambda: daemon.loop() not in {0, loop}), daemon.log()
        # The new loop first learns again which pods there are.
        assert wait_for(lambda: daemon.holds(pod)), daemon.log()
        daemon.kill()  # nobody does, until the next start
        assert pod.limit_bytes == LIMIT_BYTES
        assert daemon.journal.exists()
        daemon.start()
        assert not pod.frozen
        assert pod.limit_bytes == usual_bytes
    assert not daemon.journal.exists()


def test_the_slot_is_bound_again_after_a_rollout(cluster: ControlPlane, tmp_path: Path) -> None:
    before = pod_of(cluster, "batch")
    with node_daemon(cluster, tmp_path) as daemon:
        daemon.hold()
        assert wait_for(lambda: before.held), daemon.log()
        # It is paused, and ends within its second of grace for all that.
        cluster.kubectl("delete", "pod", before.name, "--wait", "--timeout=30s")
        assert wait_for(lambda: not before.there)
        after = pod_of(cluster, "batch")
        assert after.name != before.name
        assert wait_for(lambda: daemon.holds(after)), daemon.log()
    assert not after.frozen
    assert after.limit_bytes > LIMIT_BYTES


def test_pods_stay_held_while_the_api_server_is_gone(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    before = pod_of(cluster, "batch")
    with node_daemon(cluster, tmp_path) as daemon:
        daemon.hold()
        assert wait_for(lambda: before.held), daemon.log()
        cluster.end_api()
        assert wait_for(lambda: "cannot be used" in daemon.missing()), daemon.missing()
        assert wait_for(lambda: daemon.holds(before)), "what is known stays in force"
        cluster.start_api()
        assert wait_for(lambda: "cannot be used" not in daemon.missing()), daemon.missing()
        cluster.kubectl("delete", "pod", before.name, "--wait", "--timeout=30s")
        after = pod_of(cluster, "batch")
        assert wait_for(lambda: daemon.holds(after)), daemon.log()
    assert not after.frozen
    assert after.limit_bytes > LIMIT_BYTES


def test_a_resize_of_a_limited_pod_stays(cluster: ControlPlane, tmp_path: Path) -> None:
    cluster.apply(deployment("batch", role="background", limit_mib=128))
    assert wait_for(lambda: [pod.limit_bytes for pod in pods_of(cluster, "batch")] == [128 * MIB])
    pod = pod_of(cluster, "batch")
    with node_daemon(cluster, tmp_path) as daemon:
        daemon.hold()
        assert wait_for(lambda: pod.held), daemon.log()
        resources = {"limits": {"memory": "192Mi"}, "requests": {"memory": "192Mi"}}
        containers = [{"name": "main", "resources": resources}]
        change = json.dumps({"spec": {"containers": containers}})
        cluster.kubectl("patch", "pod", pod.name, "--subresource=resize", f"--patch={change}")
        # The kubelet writes the pod's group, and the daemon leaves that alone for a while ...
        assert wait_for(lambda: pod.limit_bytes == 192 * MIB), daemon.log()
        # ... before it limits the pod again, and puts back what the kubelet wrote last.
        assert wait_for(lambda: daemon.holds(pod)), daemon.missing()
    assert not pod.frozen
    assert pod.limit_bytes == 192 * MIB
    assert pod_of(cluster, "batch").name == pod.name, "it was resized in place"
