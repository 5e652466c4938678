"""How the pods of one selection are put together into slots. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from stallward.actuator.kubernetes.groups import Qos
from stallward.actuator.kubernetes.pod import Pod
from stallward.actuator.kubernetes.selector import is_key
from stallward.agent.errors import SchemaError


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
