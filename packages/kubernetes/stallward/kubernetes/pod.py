"""A pod, as far as it matters here, and how the API writes it. Pure.

A pod is its ``metadata.uid``, which the API server gives it. The kubelet names the group of a
*static* pod by another one, which the API shows in an annotation of its mirror pod. Anybody may
write annotations and owners on a pod of their own, so
:mod:`stallward.kubernetes.identity` says which such claims count.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stallward.actuator.targets.messages import PauseBudget
from stallward.actuator.targets.qos import Qos
from stallward.agent.printable import printable
from stallward.kubernetes.errors import PodsError
from stallward.kubernetes.probes import pause_budget

_STATIC_UID: Final = "kubernetes.io/config.hash"
"""The annotation with the UID that the kubelet knows a static pod by: the API has another one."""
_MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod, with the same value. No update may add or change it."""
_UID: Final = re.compile("(?=.{1,128}$)[0-9A-Za-z]+(?:-[0-9A-Za-z]+)*")
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_MOST_NAME: Final = 253
_SHOWN: Final = 200
"""At most so many characters of what a pod says are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod."""

    key: str
    """Its ``metadata.uid``: what it is known by here."""
    uid: str
    """The UID in the name of its group; another one if it is the mirror pod of a static pod."""
    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    qos: Qos
    created: str = ""
    """When it was made, as RFC 3339 in UTC, so that the order of texts is that of times."""
    pause: PauseBudget | None = None
    """How it may be paused without a restart by the kubelet; ``None`` if it sets no bound."""
    address: str = ""
    """Its IP address; empty while it has none."""
    leaving: bool = False
    """Whether it has ended or is about to: it must not be held up any more."""
    accepted: bool = False
    """Whether the kubelet has written its status, which only kubelets may: it has taken the pod
    for its own."""

    def __str__(self) -> str:
        """The namespace and the name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OddPod:
    """A pod that cannot be read, and is left out."""

    key: str = ""
    """Its ``metadata.uid``; empty if that cannot be read either."""
    why: str
    """Its name, and what is odd about it."""

    def __str__(self) -> str:
        """The name, and what is odd."""
        return self.why


def parse_pod(value: object, keys: Collection[str] | None = None) -> Pod:
    """Read a pod as the API writes it.

    Args:
        value: The pod.
        keys: The keys of labels and annotations that are kept; all by default.

    Raises:
        PodsError: If it is not a pod.
    """
    try:
        top = _table(value)
        metadata, status = _table(top["metadata"]), _table(top.get("status", {}))
        annotations = _texts(metadata.get("annotations"))
        spec = _table(top.get("spec", {}))
        key = _uid(metadata["uid"])
        return Pod(
            key=key,
            uid=_static_uid(metadata, annotations) or key,
            namespace=_name(metadata.get("namespace", "default")),
            name=_name(metadata["name"]),
            labels=_only(_texts(metadata.get("labels")), keys),
            annotations=_only(annotations, keys),
            qos=Qos(status["qosClass"]) if status.get("qosClass") else _qos_of(spec),
            pause=pause_budget(spec, status),
            address=_address(status.get("podIP")),
            created=str(metadata.get("creationTimestamp") or "")[:_SHOWN],
            leaving=bool(metadata.get("deletionTimestamp")) or status.get("phase") in _ENDED,
            accepted=bool(status.get("startTime")),
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise PodsError(f"What should be a pod is not one ({error!r:.200}).") from error


def take_pod(value: object, keys: Collection[str] | None = None) -> Pod | OddPod:
    """Read a pod of which nothing is known: one that is odd costs itself alone.

    Args:
        value: The pod; a :class:`PodsError` if it could not even be parsed.
        keys: As of :func:`parse_pod`.
    """
    if isinstance(value, PodsError):
        return OddPod(why=printable(f"a pod without a name: {value}")[:_SHOWN])
    try:
        return parse_pod(value, keys)
    except PodsError as error:
        return OddPod(key=key_of(value), why=printable(f"{_named(value)}: {error}")[:_SHOWN])


def parse_pods(
    value: Mapping[str, Any], keys: Collection[str] | None = None
) -> tuple[Pod | OddPod, ...]:
    """Read a list of pods as the API and ``kubectl get pods -o json`` write it.

    Args:
        value: The list; its ``items`` may be made while they are read.
        keys: As of :func:`parse_pod`.

    Raises:
        PodsError: If it is not one.
    """
    items = value.get("items") if isinstance(value, Mapping) else None
    if not isinstance(items, Iterable) or isinstance(items, str | Mapping):
        raise PodsError("There is no list of pods.")
    return tuple(take_pod(item, keys) for item in items)


def key_of(value: object) -> str:
    """The ``metadata.uid`` of what may be a pod; empty if it has none."""
    metadata = value.get("metadata") if isinstance(value, Mapping) else None
    uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
    return uid if isinstance(uid, str) and _UID.fullmatch(uid) else ""


def _named(value: object) -> str:
    metadata = value.get("metadata") if isinstance(value, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(name, str):
        return "a pod without a name"
    return f"{str(metadata.get('namespace', 'default'))[:63]}/{name[:253]}"


def _static_uid(metadata: Mapping[str, Any], annotations: Mapping[str, str]) -> str:
    """The UID of the static pod of which this looks like the mirror pod; empty if it does not."""
    uid = annotations.get(_STATIC_UID, "")
    owners = metadata.get("ownerReferences") or ()
    is_mirror = annotations.get(_MIRROR) == uid and any(one["kind"] == "Node" for one in owners)
    return _uid(uid) if uid and is_mirror else ""


def _qos_of(spec: Mapping[str, Any]) -> Qos:
    """The quality of service of a pod whose status does not say it yet."""
    containers = [*(spec.get("initContainers") or ()), *spec.get("containers", [])]
    resources = [_table(one.get("resources") or {}) for one in containers]
    requests = [_texts(one.get("requests")) for one in resources]
    limits = [_texts(one.get("limits")) for one in resources]
    if not any((*requests, *limits)):
        return Qos.BEST_EFFORT
    guaranteed = all(
        {"cpu", "memory"} <= most.keys()
        and all(least.get(name, most[name]) == most[name] for name in ("cpu", "memory"))
        for least, most in zip(requests, limits, strict=True)
    )
    return Qos.GUARANTEED if guaranteed else Qos.BURSTABLE


def _uid(value: object) -> str:
    """Check a UID, which becomes a part of paths."""
    if not isinstance(value, str) or not _UID.fullmatch(value):
        raise ValueError(f"{value!r:.80} is not a UID")
    return value


def _address(value: object) -> str:
    """Check an address, which becomes a part of URLs."""
    return str(ipaddress.ip_address(value)) if isinstance(value, str) and value else ""


def _table(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r:.80} is not a table")
    return value


def _name(value: object) -> str:
    """Check a name, which is shown."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= _MOST_NAME:
        raise ValueError(f"{value!r:.80} is not a name")
    return value


def _texts(value: object) -> Mapping[str, str]:
    texts = {} if value is None else _table(value)
    odd = next((key for key, text in texts.items() if not isinstance(text, str)), None)
    if odd is not None:
        raise TypeError(f"the value of {odd!r:.80} is not a text")
    return texts


def _only(texts: Mapping[str, str], keys: Collection[str] | None) -> Mapping[str, str]:
    if keys is None:
        return dict(texts)
    return {key: texts[key] for key in keys if key in texts}
