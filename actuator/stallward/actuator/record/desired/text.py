"""Makes a few words of a desired state: one for each lever that it moves. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from stallward.actuator.record.desired.changes import differ
from stallward.agent.desired import (
    MIB,
    PROFILES,
    SLOT_LEVERS,
    DesiredState,
    ProcessRef,
    SlotDesire,
)
from stallward.agent.file_pages import FileAction, FilePages, Victim
from stallward.agent.threads import ThreadDesire

_SLOT_WORDS: Final = {name: lever.words for name, lever in SLOT_LEVERS.items()}
_STATE_WORDS: Final = {name: lever.state for name, lever in SLOT_LEVERS.items()}
_TUNING_WORDS: Final = {
    "swappiness": "vm.swappiness {value}",
    "protected_swappiness": "swappiness of the application {value}",
    "dirty_background_ratio": "vm.dirty_background_ratio {value}",
    "dirty_ratio": "vm.dirty_ratio {value}",
    "overcommit_memory": "vm.overcommit_memory {value}",
}
_NODE_WORDS: Final = {
    "stopped": "stop process {value}",
    "terminate": "end process {value}",
    "kill_at_once": "by SIGKILL at once",
    "protect_from_oom": "protect the application from the OOM killer",
    "protected_low_bytes": "guarantee the application {value}",
    "protected_willneed": "read the application's pages back",
    "file_pages": "{value}",
    "protected_threads": "schedule the application's threads {value}",
}
NOTHING: Final = "nothing"
"""The words of a state that moves no lever."""


def desired_text(desired: DesiredState, names: Sequence[str] = ()) -> str:
    """Describe a desired state in a few words.

    Args:
        desired: The state.
        names: The slots' names; a slot without one goes by its number.
    """
    words = []
    for index, slot in enumerate(desired.slots):
        name = names[index] if index < len(names) else str(index)
        words += _words(slot, _SLOT_WORDS, slot=name)
    words += _words(desired, _NODE_WORDS)
    tuning = desired.tuning
    settings = ", ".join(_words(tuning, _TUNING_WORDS))
    if tuning.name != PROFILES[0].name or settings:
        known = tuning in PROFILES or not settings
        words.append(f"tune {tuning.name}" + ("" if known else f" ({settings})"))
    return ", ".join(words) or NOTHING


FREE: Final = "free"
"""What is said of a slot to which nothing is done."""


def slot_text(desire: SlotDesire) -> str:
    """Say how a slot is treated, e.g. ``paused, limit 8 MiB``."""
    return ", ".join(_words(desire, _STATE_WORDS)) or FREE


def node_text(desired: DesiredState) -> str:
    """Describe what a desired state holds besides the slots; empty for nothing."""
    text = desired_text(replace(desired, slots=()))
    return "" if text == NOTHING else text


def treatments_text(before: DesiredState, now: DesiredState, names: Sequence[str] = ()) -> str:
    """Say in one line how each slot is treated whose treatment is another one than before.

    Slots that are treated alike are named together; what changed for the node comes last.

    Args:
        before: The state before.
        now: The present state.
        names: The slots' names; a slot without one goes by its number.
    """
    alike: dict[str, list[str]] = {}
    for index in range(max(len(before.slots), len(now.slots))):
        if differ(
            DesiredState(slots=(before.slot(index),)), DesiredState(slots=(now.slot(index),))
        ):
            name = names[index] if index < len(names) else str(index)
            alike.setdefault(slot_text(now.slot(index)), []).append(name)
    parts = [f"{', '.join(slots)} {text}" for text, slots in alike.items()]
    if differ(replace(before, slots=()), replace(now, slots=())):
        parts.append(node_text(now) or "all else as it was")
    return "; ".join(parts)


_ACTION_WORDS: Final[Mapping[FileAction, str]] = {
    "flush": "write back",
    "clear": "clear the referenced bits of",
    "cold": "advise cold for",
    "pageout": "page out",
    "mark": "mark as used",
    "activate": "activate",
    "activate-mark": "activate and mark",
    "willneed": "read in",
}
_VICTIM_WORDS: Final[Mapping[Victim, str]] = {
    "largest-file": "the process with the largest program file",
    "largest-size": "the largest process",
    "next": "the next process to run",
    "most-run": "the process that ran most",
    "protected": "the application",
}


def file_pages_text(wish: FilePages) -> str:
    """Describe what is done to file pages."""
    # A record of another version may hold words that this one does not know.
    action = _ACTION_WORDS.get(wish.action, wish.action)
    victim = _VICTIM_WORDS.get(wish.victim, wish.victim)
    first = "write back and " if wish.writeback else ""
    return f"{first}{action} the {wish.scope} file pages of {victim}"


def _words(state: object, templates: Mapping[str, str], **names: str) -> list[str]:
    """The words for every field of a state that is not left as it is."""
    words = []
    for field, template in templates.items():
        value = getattr(state, field)
        if value is None or value is False or value == ():
            continue
        words.append(template.format(value=_value_text(field, value), **names))
    return words


def _value_text(field: str, value: Any) -> str:
    if field.endswith(("_bytes", "_bytes_per_s")):
        return f"{value / MIB:.0f} MiB"
    if isinstance(value, ProcessRef):
        return str(value.pid)
    if isinstance(value, FilePages):
        return file_pages_text(value)
    if isinstance(value, tuple):
        return ", ".join(map(_entry_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _entry_text(entry: Any) -> str:
    if isinstance(entry, ThreadDesire):
        slice_us, nice, cpus = entry.slice_us, entry.nice, ",".join(map(str, entry.cpus))
        settings = (slice_us and f"{slice_us} us", nice is not None and f"nice {nice}")
        words = [word for word in (*settings, cpus and f"CPUs {cpus}") if word]
        return f"{entry.thread.tid} ({', '.join(words)})"
    return str(entry.pid if isinstance(entry, ProcessRef) else entry)
