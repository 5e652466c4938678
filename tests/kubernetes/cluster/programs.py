"""Where the programs of a cluster are that `scripts/kubernetes.sh` builds and unpacks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[3]
FOLDER: Final = _ROOT / "build/kubernetes"
_BUILT: Final = FOLDER / "bin"
_UNPACKED: Final = FOLDER / "root"
API_SERVER: Final = _BUILT / "kube-apiserver"
CONTROLLERS: Final = _BUILT / "kube-controller-manager"
SCHEDULER: Final = _BUILT / "kube-scheduler"
KUBELET: Final = _BUILT / "kubelet"
KUBECTL: Final = _BUILT / "kubectl"
ETCD: Final = _UNPACKED / "usr/bin/etcd"
CONTAINERD: Final = _UNPACKED / "usr/bin/containerd"
CTR: Final = _UNPACKED / "usr/bin/ctr"
RUNC: Final = _UNPACKED / "usr/sbin/runc"
CNI: Final = _UNPACKED / "usr/lib/cni"
BUSYBOX: Final = _UNPACKED / "bin/busybox"
HELM: Final = Path(shutil.which("helm") or _ROOT / "build/helm/bin/helm")


def why_missing() -> str:
    """Why there is no cluster to start; empty if there is one."""
    wanted = (
        API_SERVER, CONTROLLERS, SCHEDULER, KUBELET, KUBECTL, ETCD, CONTAINERD, CTR, RUNC, CNI,
        BUSYBOX, HELM,
    )  # fmt: skip
    lacking = [path.name for path in wanted if not path.exists()]
    return f"run scripts/kubernetes.sh, which makes: {', '.join(lacking)}" if lacking else ""
