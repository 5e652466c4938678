"""Which pods are selected, and which of them share a slot. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from stallward.actuator.targets.qos import Qos
from stallward.agent.errors import SchemaError

# ---------- Label selectors, in the syntax of the Kubernetes API
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
