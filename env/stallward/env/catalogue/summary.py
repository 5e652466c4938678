"""What a catalogue holds, in a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stallward.env.catalogue.read import Catalogue
from stallward.env.recording.stored import Selection

_KINDS: Final = ("node", "scenario", "condition", "arm")
HEADERS: Final = (*_KINDS, "recordings", "hours", "MB", "first day", "last day")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedKind:
    """The recordings of one arm and condition in one scenario of one node."""

    node: str
    scenario: str
    condition: str
    arm: str
    recordings: int
    length_s: float
    stored_bytes: int
    first_day: str
    last_day: str


def summarise(url: str, selection: Selection | None = None) -> list[RecordedKind]:
    """Sum up the selected recordings of a catalogue; only their rows are read.

    Raises:
        CatalogueError: If there is none, or it is damaged or of another version.
        StorageError: If the storage cannot be read.
    """
    measured = ("sha256", "length_s", "stored_bytes", "day", "started")
    rows = Catalogue(url).runs((*_KINDS, *measured), selection).to_pylist()
    once = {row["sha256"]: row for row in rows}.values()
    kinds = sorted({tuple(row[name] for name in _KINDS) for row in once})
    summed = []
    for kind in kinds:
        mine = [row for row in once if tuple(row[name] for name in _KINDS) == kind]
        summed.append(
            RecordedKind(
                **dict(zip(_KINDS, kind, strict=True)),
                recordings=len(mine),
                length_s=sum(row["length_s"] for row in mine),
                stored_bytes=sum(row["stored_bytes"] for row in mine),
                first_day=f"{min(row['day'] for row in mine)}",
                last_day=f"{max(row['day'] for row in mine)}",
            )
        )
    return summed


def summary_rows(kinds: Sequence[RecordedKind]) -> list[tuple[str, ...]]:
    """The kinds as table rows with the columns :data:`HEADERS`."""
    return [
        (
            one.node,
            one.scenario,
            one.condition,
            one.arm,
            f"{one.recordings}",
            f"{one.length_s / 3600.0:.2f}",
            f"{one.stored_bytes / 1e6:.1f}",
            one.first_day,
            one.last_day,
        )
        for one in kinds
    ]
