"""A pod, as far as it matters here, and how the API writes it. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stallward.actuator.errors import PodsError
from stallward.actuator.kubernetes.groups import Qos
from stallward.actuator.kubernetes.probes import PauseBudget, pause_budget

_STATIC_UID: Final = "kubernetes.io/config.hash"
"""The annotation with the UID that the kubelet knows a static pod by: the API has another one."""
_UID: Final = re.compile("[0-9A-Za-z]+(?:-[0-9A-Za-z]+)*")
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod."""

    uid: str
    """Its UID, as the kubelet knows it."""
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

    def __str__(self) -> str:
        """The namespace and the name."""
        return f"{self.namespace}/{self.name}"


def parse_pod(value: object) -> Pod:
    """Read a pod as the API writes it.

    Raises:
        PodsError: If it is not a pod.
    """
    try:
        top = _table(value)
        metadata, status = _table(top["metadata"]), _table(top.get("status", {}))
        annotations = _texts(metadata.get("annotations"))
        spec = _table(top.get("spec", {}))
        return Pod(
            uid=_uid(annotations.get(_STATIC_UID) or metadata["uid"]),
            namespace=str(metadata.get("namespace", "default")),
            name=str(metadata["name"]),
            labels=_texts(metadata.get("labels")),
            annotations=annotations,
            qos=Qos(status["qosClass"]) if status.get("qosClass") else _qos_of(spec),
            pause=pause_budget(spec, status),
            address=_address(status.get("podIP")),
            created=str(metadata.get("creationTimestamp", "")),
            leaving=bool(metadata.get("deletionTimestamp")) or status.get("phase") in _ENDED,
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise PodsError(f"What should be a pod is not one ({error!r:.200}).") from error


def parse_pods(value: object) -> tuple[Pod, ...]:
    """Read a list of pods as the API and ``kubectl get pods -o json`` write it.

    Raises:
        PodsError: If it is not one.
    """
    items = value.get("items") if isinstance(value, Mapping) else None
    if not isinstance(items, list):
        raise PodsError(
            "There is no list of pods.",
            next_step="It must be JSON with `items`, as `kubectl get pods -o json` prints it.",
        )
    return tuple(map(parse_pod, items))


def _qos_of(spec: Mapping[str, Any]) -> Qos:
    """The quality of service of a pod whose status does not say it yet."""
    containers = [*spec.get("initContainers", []), *spec.get("containers", [])]
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


def _texts(value: object) -> dict[str, str]:
    if value is None:
        return {}
    return {str(key): str(text) for key, text in _table(value).items()}
