"""Which pods are what they claim to be. Pure.

A pod has the group of its own ``metadata.uid``, which nobody but the API server writes. Only the
mirror pod of a static pod has the group of another UID: the one that it claims in annotations.
Whoever may make a pod may write those annotations, the owner that goes with them, and ``nodeName``:
the admission plugin NodeRestriction keeps *kubelets* from making other pods than mirror pods, and
nobody else from making them. So a claim counts only if

* no other pod has that UID: a pod's own UID always wins;
* the kubelet has written the pod's status. It does so only for the mirror pod of a static pod that
  it runs, and deletes any other. The API server drops a status that is given at creation, and the
  usual roles may not write ``pods/status``;
* no other pod makes the same claim: neither is believed then.

Sources: kubernetes plugin/pkg/admission/noderestriction/admission.go, pkg/kubelet/kubelet.go,
pkg/kubelet/pod/mirror_client.go, pkg/registry/core/pod/strategy.go, pkg/apis/core/validation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from stallward.kubernetes.pod import OddPod, Pod


def believed(pods: Iterable[Pod | OddPod]) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
    """Return the pods that are what they claim to be, and why each other one is left out.

    No two of them have one group.

    Args:
        pods: All pods of the node.
    """
    all_pods = tuple(pods)
    own = {pod.key: pod for pod in all_pods if pod.key}
    claims: dict[str, list[Pod]] = defaultdict(list)
    for pod in all_pods:
        if isinstance(pod, Pod) and pod.uid != pod.key and pod.accepted and not pod.leaving:
            claims[pod.uid].append(pod)
    good: list[Pod] = []
    left_out: list[str] = []
    for pod in all_pods:
        why = pod.why if isinstance(pod, OddPod) else _why_not(pod, own, claims)
        if why:
            left_out.append(why)
        elif isinstance(pod, Pod):
            good.append(pod)
    return tuple(good), tuple(left_out)


def _why_not(pod: Pod, own: dict[str, Pod | OddPod], claims: dict[str, list[Pod]]) -> str:
    """Why a pod is not believed; empty if it is."""
    if pod.uid == pod.key:
        return ""
    if pod.uid in own:
        return f"{pod}: an annotation names the group of another pod, {own[pod.uid]}"
    if not pod.accepted:
        return f"{pod}: it claims to mirror a static pod, and the kubelet has not said so"
    others = [other for other in claims[pod.uid] if other is not pod]
    if others and not pod.leaving:
        return f"{pod}: {others[0]} claims to mirror the same static pod"
    return ""
