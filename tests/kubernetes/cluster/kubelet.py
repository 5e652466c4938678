"""The kubelet and containerd of a node, which run pods for real."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import programs
from control_plane import ControlPlane
from images import write_image
from node_space import NAME, wait_for

PAUSE_IMAGE: Final = "localhost/pause:1"
BUSYBOX_IMAGE: Final = "localhost/busybox:1"
KUBECTL_IMAGE: Final = "localhost/kubectl:1"
DAEMON_IMAGE: Final = "localhost/stallward:test"
_SOCKET: Final = "/run/containerd.sock"
_CONTAINERD: Final = """
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni}"
conf_dir = "{folder}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{folder}/runc"
SystemdCgroup = false
"""
_NETWORK: Final = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.85.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}
_KUBELET: Final = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "containerRuntimeEndpoint": f"unix://{_SOCKET}",
    "failSwapOn": False,
    "failCgroupV1": False,
    "makeIPTablesUtilChains": False,
    "localStorageCapacityIsolation": False,
    "oomScoreAdj": 0,
    "resolvConf": "",
    "evictionHard": {"memory.available": "1Mi"},
    "imageGCHighThresholdPercent": 100,
    "syncFrequency": "5s",
    "shutdownGracePeriod": "0s",
}


def start_kubelet(plane: ControlPlane) -> None:
    """Start containerd with the images of the tests, and the kubelet; wait for the node."""
    space = plane.space
    folder = space.folder / "kubelet"
    (folder / "cni").mkdir(parents=True)
    (folder / "cni/pods.conflist").write_text(json.dumps(_NETWORK))
    daemon = f"{sys.prefix}:{sys.base_prefix}:{Path(__file__).parents[3]}:/usr:/lib:/lib64"
    wrapper = Path(__file__).with_name("runc_wrapper.py")
    (folder / "runc").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -I -S {wrapper} {programs.RUNC} "{daemon}" "$@"\n'
    )
    (folder / "runc").chmod(0o755)
    (folder / "containerd.toml").write_text(
        _CONTAINERD.format(folder=folder, socket=_SOCKET, pause=PAUSE_IMAGE, cni=programs.CNI)
    )
    path = f"PATH={programs.CONTAINERD.parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    space.start("containerd", "env", path, programs.CONTAINERD, "-c", folder / "containerd.toml")
    ctr = (programs.CTR, "-a", _SOCKET, "-n", "k8s.io")
    ready = wait_for(lambda: space.run(*ctr, "images", "ls", check=False), 30.0)
    assert ready, space.log("containerd")
    for name, command in (
        (PAUSE_IMAGE, ("/bin/busybox", "sleep", "infinity")),
        (BUSYBOX_IMAGE, ("/bin/busybox", "sh")),
        (KUBECTL_IMAGE, ("/bin/kubectl",)),
        (DAEMON_IMAGE, (str(Path(sys.prefix) / "bin/stallward"),)),
    ):
        program = programs.KUBECTL if name == KUBECTL_IMAGE else programs.BUSYBOX
        write_image(folder / "image.tar", name, {f"bin/{program.name}": program}, command)
        space.run(*ctr, "images", "import", folder / "image.tar")
    (folder / "kubelet.json").write_text(json.dumps(_KUBELET))
    space.start(
        "kubelet",
        programs.KUBELET,
        f"--config={folder / 'kubelet.json'}",
        f"--kubeconfig={plane.node_kubeconfig}",
        f"--hostname-override={NAME}",
        "--node-ip=10.96.0.1",
        f"--root-dir={folder / 'root'}",
    )
    ready = wait_for(lambda: not space.runs("kubelet") or _is_ready(plane))
    assert ready, space.log("kubelet")
    assert space.runs("kubelet"), space.log("kubelet")


def _is_ready(plane: ControlPlane) -> bool:
    path = "{.status.conditions[?(@.type=='Ready')].status}"
    return plane.kubectl("get", "node", NAME, "-o", f"jsonpath={path}", check=False) == "True"
