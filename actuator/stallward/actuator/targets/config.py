"""How the configuration names pods, and where they are looked up."""

from __future__ import annotations

import ipaddress
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from stallward.actuator.kernel.paths import Paths
from stallward.actuator.parts import Part, load_part
from stallward.actuator.targets.qos import Qos
from stallward.agent.errors import SchemaError

if TYPE_CHECKING:
    from stallward.actuator.targets.selection import Grouping, Pod, Selector

ROLE: Final = "stallward.io/role"
"""The annotation of a pod that ``role`` is compared with."""
MOST_SLOTS: Final = 64
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, kw_only=True)
class PodConfig:
    """Which pods of this node are meant; everything given must hold."""

    namespace: str | None = None
    """The namespace; any by default."""
    selector: str = ""
    """Labels, in the API's syntax, e.g. ``app=batch,tier in (a,b)``."""
    role: str | None = None
    """The value of the pod's annotation ``stallward.io/role``."""
    qos: tuple[Qos, ...] = ()
    """The quality of service: any of these; all by default."""
    slots: int = 1
    """How many slots are made of the table. Their names end with their numbers then."""
    group_by: str = "pod"
    """Which pods share a slot: ``pod`` for none, ``all``, ``qos``, ``label:KEY`` or
    ``annotation:KEY`` for those with the same value."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            SchemaError: If one cannot be used, or nothing selects.
        """
        self.labels  # noqa: B018 - it parses the selector
        most = self.grouping.most_slots
        if most is not None and self.slots > most:
            raise SchemaError(
                f"slots is {self.slots}, and group_by = {self.group_by!r} fills {most} at most.",
                next_step=f"Write slots = {most} or less.",
            )
        for key in ("namespace", "role"):
            value = getattr(self, key)
            if value is not None and not value.strip():
                raise SchemaError(f"{key} is empty.", next_step="Remove it to take any.")
        if not 1 <= self.slots <= MOST_SLOTS:
            raise SchemaError(f"slots is {self.slots}, outside 1..{MOST_SLOTS}.")
        if not (self.namespace or self.selector.strip() or self.role or self.qos):
            raise SchemaError(
                "selector is missing, so every pod is meant.",
                next_step="Give at least one of namespace, selector, role and qos.",
            )

    @cached_property
    def labels(self) -> Selector:
        """The selector."""
        selector: Selector = load_part(Part.LABEL_SELECTOR)(self.selector)
        return selector

    @cached_property
    def grouping(self) -> Grouping:
        """Which pods share a slot."""
        grouping: Grouping = load_part(Part.POD_GROUPING)(self.group_by)
        return grouping

    @property
    def shared(self) -> bool:
        """Whether a slot may have several pods."""
        return self.group_by != "pod"

    def matches(self, pod: Pod) -> bool:
        """Whether a pod is meant."""
        return (
            self.namespace in {None, pod.namespace}
            and (not self.qos or pod.qos in self.qos)
            and (self.role is None or pod.annotations.get(ROLE) == self.role)
            and self.labels.matches(pod.labels)
        )

    @property
    def keys(self) -> frozenset[str]:
        """The keys of the labels and annotations that it looks at."""
        asked = {requirement.key for requirement in self.labels.requirements}
        return frozenset({ROLE, self.grouping.key, *asked})

    def __str__(self) -> str:
        """The selection, for messages."""
        parts = {
            "namespace": self.namespace or "",
            "selector": self.selector.strip(),
            "role": self.role or "",
            "qos": "/".join(qos.value for qos in self.qos),
        }
        return ", ".join(f"{name} {value}" for name, value in parts.items() if value)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesConfig:
    """Where the pods of this node are looked up."""

    source: Literal["api", "kubelet", "file"] = "api"
    """The API server, the kubelet of this node, or a file that another program keeps."""
    path: Path | None = None
    """With ``file``: a list of pods as ``kubectl get pods -o json`` prints it."""
    node: str | None = None
    """The node's name; by default that of the environment variable ``NODE_NAME``."""
    server: str | None = None
    """The API server, ``https://HOST:PORT``; by default that of the cluster the daemon runs in.
    With ``kubelet`` the kubelet; by default port 10250 of ``NODE_IP`` of the environment."""
    server_name: str | None = None
    """The name in the server's certificate; by default the host of the address."""
    token: Path = _ACCOUNT / "token"
    """The token of the service account; it is read again for each request."""
    ca: Path = _ACCOUNT / "ca.crt"
    """The authority of the server's certificate."""
    resync_s: float = 300.0
    """With ``api``: after how long all pods are listed anew, whatever was reported meanwhile."""
    cgroup_parent: str | None = None
    """The group of the kubelet's ``--cgroup-root``; the usual ones are tried by default."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            SchemaError: If one cannot be used, or one is missing.
        """
        if (self.source == "file") != (self.path is not None):
            raise SchemaError(
                'path goes with source = "file", and only with it.',
                next_step='Write source = "file" and path = "/PATH/pods.json", or neither.',
            )
        for key in ("path", "token", "ca"):
            path = getattr(self, key)
            if path is not None and not path.is_absolute():
                raise SchemaError(
                    f"{key} is {str(path)!r}, a relative path.",
                    next_step="Write the whole path, from /.",
                )
        if not 1.0 <= self.resync_s <= 86400.0:
            raise SchemaError(f"resync_s is {self.resync_s:g}, outside 1..86400.")
        if self.server is not None:
            check_server(self.server)
        if self.server_name is not None and not self.server_name.strip():
            raise SchemaError("server_name is empty.", next_step="Remove it, or name the server.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsOptions:
    """What the process that follows the pods is told at its start."""

    fd: int
    """A socket to the loop."""
    life_fd: int
    """It ends when the other end of this descriptor is closed."""
    kubernetes: KubernetesConfig
    paths: Paths
    """The kernel's files."""
    protected: tuple[PodConfig | None, ...]
    """Each protected application; ``None`` for one that is no pod."""
    slots: tuple[PodConfig | None, ...]
    """Each slot in order; ``None`` for one that is no pod."""
    names: tuple[str, ...]
    """The names of the applications and of the slots."""
    address_fds: tuple[int, ...] = ()
    """For each application a socket to which the address of its pod is sent; -1 if nobody needs
    it."""


def keys_of(configs: Iterable[PodConfig | None]) -> frozenset[str]:
    """Return the keys of labels and annotations that any of the selections looks at."""
    return frozenset().union(*(config.keys for config in configs if config is not None))


def check_server(server: str) -> None:
    """Check the address of a server of the cluster.

    Raises:
        SchemaError: If it is none, or other machines could read what is sent to it.
    """
    try:
        parts = urllib.parse.urlsplit(server)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise SchemaError(f"server is {server!r}: {error}.") from error
    if parts.scheme not in {"http", "https"} or not host or parts.path.strip("/"):
        raise SchemaError(
            f"server is {server!r}.", next_step="Write https://HOST:PORT, without a path."
        )
    if parts.scheme == "http" and not _is_local(host):
        raise SchemaError(
            f"server is {server!r}, which is not encrypted.",
            next_step="Use https; http is for `kubectl proxy` on this machine only.",
        )


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
