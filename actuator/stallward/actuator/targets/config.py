"""How the configuration names pods, and where they are looked up."""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, Protocol

from stallward.actuator.kernel.paths import Paths
from stallward.actuator.targets.kubelet_groups import Qos
from stallward.agent.errors import SchemaError

# ---------- Label selectors, in the syntax of the Kubernetes API. Pure
# ``app=batch, tier in (a, b), !pinned``: all requirements must hold. ``!=`` and ``notin`` also hold
# for an object without the label (kubernetes staging/src/k8s.io/apimachinery/pkg/labels).

_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
_KEY: Final = re.compile(rf"(?:(?P<domain>{_DOMAIN})/)?{_NAME}")
_VALUE: Final = re.compile(rf"(?:{_NAME})?")
_MOST_DOMAIN: Final = 253
_TOKEN: Final = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")
_INTEGER: Final = re.compile(r"[+-]?\d{1,18}")


class Operator(Enum):
    """How a label is compared."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "!"
    GREATER = ">"
    LESS = "<"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One requirement of a selector."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets it."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.ABSENT:
                return value is None
        if value is None or not _INTEGER.fullmatch(value):
            return False
        (bound,) = map(int, self.values)
        return int(value) > bound if self.operator is Operator.GREATER else int(value) < bound


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements on labels; without any, every object is selected."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return all(requirement.holds(labels) for requirement in self.requirements)


def parse_selector(text: str) -> Selector:
    """Parse a selector.

    Raises:
        SchemaError: If it is not one of the API's syntax.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text):  # pragma: no cover - every character is a token
        raise _wrong(text, "it has characters that cannot be read")
    parser = _Parser(text, tokens)
    requirements = []
    while parser.left:
        requirements.append(parser.requirement())
        if parser.left:
            parser.expect(",")
            if not parser.left:
                raise _wrong(text, "it ends with a comma")
    return Selector(tuple(requirements))


def is_key(text: str) -> bool:
    """Whether a text can be the key of a label or an annotation."""
    found = _KEY.fullmatch(text)
    return found is not None and len(found["domain"] or "") <= _MOST_DOMAIN


def _wrong(text: str, why: str) -> SchemaError:
    return SchemaError(
        f"selector is {text!r}: {why}.",
        next_step='Write it as for `kubectl get pods -l`, e.g. "app=batch,tier in (a,b)".',
    )


class _Parser:
    def __init__(self, text: str, tokens: list[str]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0

    @property
    def left(self) -> bool:
        """Whether there are tokens left."""
        return self._next < len(self._tokens)

    def requirement(self) -> Requirement:
        """Take the tokens of one requirement."""
        if self._take("!"):
            return Requirement(key=self._key(), operator=Operator.ABSENT)
        key = self._key()
        if not self.left or self._peek() == ",":
            return Requirement(key=key, operator=Operator.EXISTS)
        word = self._token()
        match word:
            case "=" | "==" | "!=":
                operator = Operator.NOT_IN if word == "!=" else Operator.IN
                return Requirement(key=key, operator=operator, values=frozenset({self._value()}))
            case "in" | "notin":
                return Requirement(key=key, operator=Operator(word), values=self._values())
            case "<" | ">":
                value = self._value()
                if not _INTEGER.fullmatch(value):
                    raise _wrong(self._text, f"{value!r} after {word!r} is not an integer")
                return Requirement(key=key, operator=Operator(word), values=frozenset({value}))
        raise _wrong(self._text, f"{word!r} after {key!r} is not an operator")

    def expect(self, word: str) -> None:
        """Take the token ``word``."""
        found = self._token() if self.left else "its end"
        if found != word:
            raise _wrong(self._text, f"{found!r} is where {word!r} must be")

    def _peek(self) -> str:
        return self._tokens[self._next] if self.left else ""

    def _token(self) -> str:
        if not self.left:
            raise _wrong(self._text, "it ends too early")
        self._next += 1
        return self._tokens[self._next - 1]

    def _take(self, word: str) -> bool:
        taken = self._peek() == word
        self._next += taken
        return taken

    def _key(self) -> str:
        key = self._token()
        if not is_key(key):
            raise _wrong(self._text, f"{key!r} is not the key of a label")
        return key

    def _value(self) -> str:
        """Take a value, which may be empty."""
        if self._peek() in {"", ",", ")"}:
            return ""
        value = self._token()
        if not _VALUE.fullmatch(value):
            raise _wrong(self._text, f"{value!r} is not the value of a label")
        return value

    def _values(self) -> frozenset[str]:
        self.expect("(")
        values = {self._value()}
        while self._take(","):
            values.add(self._value())
        self.expect(")")
        return frozenset(values)


# ---------- How the pods of one selection are put together into slots.


class Pod(Protocol):
    """What a selection looks at of a pod."""

    @property
    def key(self) -> str:
        """What tells it apart."""

    @property
    def namespace(self) -> str:
        """Its namespace."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations."""

    @property
    def qos(self) -> Qos:
        """Its quality of service."""


class GroupBy(Enum):
    """What the pods of one slot have in common."""

    POD = "pod"
    """Nothing: each pod has a slot of its own."""
    ALL = "all"
    """The selection: all pods have one slot."""
    QOS = "qos"
    LABEL = "label"
    ANNOTATION = "annotation"


_WITH_KEY: Final = frozenset({GroupBy.LABEL, GroupBy.ANNOTATION})
_MOST_SLOTS: Final = {GroupBy.ALL: 1, GroupBy.QOS: len(Qos)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """A rule by which pods share slots."""

    by: GroupBy
    key: str = ""
    """The key of the label or annotation; empty for the others."""

    def value_of(self, pod: Pod) -> str:
        """What a pod has in common with the others of its slot.

        The pods that lack the label or annotation are one group, too.
        """
        match self.by:
            case GroupBy.POD:
                return pod.key
            case GroupBy.ALL:
                return ""
            case GroupBy.QOS:
                return pod.qos.value
            case GroupBy.LABEL:
                return pod.labels.get(self.key, "")
            case GroupBy.ANNOTATION:
                return pod.annotations.get(self.key, "")

    @property
    def most_slots(self) -> int | None:
        """How many slots can have pods; ``None`` for any number."""
        return _MOST_SLOTS.get(self.by)


def parse_group_by(text: str) -> Grouping:
    """Parse the key ``group_by``.

    Raises:
        SchemaError: If it is none of the rules, or the key of a label or annotation is wrong.
    """
    word, colon, key = text.partition(":")
    by = next((rule for rule in GroupBy if rule.value == word), None)
    if by is None or bool(colon) != (by in _WITH_KEY):
        raise SchemaError(
            f"group_by is {text!r}.",
            next_step='Write "pod", "all", "qos", "label:KEY" or "annotation:KEY".',
        )
    if by in _WITH_KEY and not is_key(key):
        raise SchemaError(
            f"group_by is {text!r}: {key!r} is not the key of a label or annotation.",
            next_step='Write e.g. "label:app" or "annotation:example.com/team".',
        )
    return Grouping(by=by, key=key)


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
        return parse_selector(self.selector)

    @cached_property
    def grouping(self) -> Grouping:
        """Which pods share a slot."""
        return parse_group_by(self.group_by)

    @property
    def shared(self) -> bool:
        """Whether a slot may have several pods."""
        return self.grouping.by is not GroupBy.POD

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
