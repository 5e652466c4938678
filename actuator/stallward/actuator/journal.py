"""The journal of original settings: entries, restoring them, and who holds them.

Everything is noted before its first change. The daemon's guardian, the sandbox and a swap file
of our own all use the same entries.
"""

from __future__ import annotations

from stallward.actuator.journal_disk import Journal
from stallward.actuator.journal_entries import (
    FileValue,
    Frozen,
    GroupThreads,
    JournalEntry,
    KeyedValue,
    Noted,
    OomScore,
    OwnedFolder,
    OwnedGroup,
    Stopped,
    SwapFile,
    ThreadValue,
    from_line,
    to_line,
)
from stallward.actuator.journal_restore import restore
from stallward.actuator.keeper import Keeper

__all__ = [
    "FileValue",
    "Frozen",
    "GroupThreads",
    "Journal",
    "JournalEntry",
    "Keeper",
    "KeyedValue",
    "Noted",
    "OomScore",
    "OwnedFolder",
    "OwnedGroup",
    "Stopped",
    "SwapFile",
    "ThreadValue",
    "from_line",
    "restore",
    "to_line",
]
