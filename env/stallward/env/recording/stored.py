"""Recordings that are stored and not yet loaded: what is known of each without reading its ticks.

A fit or an estimate holds these, and loads a recording when it needs it, so that its memory does
not grow with their number. :mod:`stallward.env.catalogue` has others than directories.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from stallward.agent.errors import UsageError
from stallward.env.errors import RecordingError
from stallward.env.recording.recording import Recording, load_recording
from stallward.env.recording.run_info import Condition, RunInfo, load_run

_FIRST_WALL_US: Final = 946_684_800_000_000
"""The year 2000: an earlier wall time is none, as in recordings made before there was one."""
MOST_HELD: Final = 32
"""So many recordings are held in memory, or looked at together. A scenario with more of them is
described by a choice of so many (:func:`spread`)."""


class StoredRecording(Protocol):
    """One recording, wherever it is."""

    @property
    def name(self) -> str:
        """Its name, for people."""

    @property
    def scenario(self) -> str:
        """The scenario that ran."""

    @property
    def condition(self) -> Condition:
        """What ran beside the application."""

    @property
    def arm(self) -> str:
        """The controller that ran."""

    @property
    def oom_kills(self) -> int:
        """How many processes the kernel killed because memory ran out."""

    @property
    def files(self) -> tuple[Path, ...]:
        """What must be on a machine that loads it; empty for what comes over the network."""

    def requests(self) -> int:
        """How many requests it has."""

    def choices(self) -> int | None:
        """How many choices an action with a propensity has; ``None`` without propensities."""

    def run(self) -> RunInfo:
        """What was run."""

    def load(self) -> Recording:
        """Load it."""

    def sha256(self) -> str:
        """The digest of its contents."""


Stored = TypeVar("Stored", bound=StoredRecording)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingFolder:
    """A recording that is a directory."""

    path: Path
    scenario: str
    condition: Condition
    arm: str
    node: str
    """The name of its node; empty in recordings of versions that did not write it."""
    oom_kills: int

    @classmethod
    def open(cls, path: Path) -> RecordingFolder:
        """Look at a directory.

        Raises:
            RecordingError: If it is no recording, or one of another version.
        """
        run = load_run(path)
        return cls(
            path=path,
            scenario=run.scenario,
            condition=run.condition,
            arm=run.arm,
            node=run.node_name,
            oom_kills=run.oom_kills,
        )

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.path.name

    @property
    def files(self) -> tuple[Path, ...]:
        """The directory."""
        return (self.path,)

    def requests(self) -> int:
        """How many requests it has.

        Raises:
            RecordingError: If they cannot be read.
        """
        try:
            return int(pq.read_metadata(self.path / "requests.parquet").num_rows)
        except (OSError, pa.ArrowException):
            return len(load_recording(self.path).requests.ok)  # its errors say what to do

    def choices(self) -> int | None:
        """How many choices an action with a propensity has.

        Raises:
            RecordingError: If the actions cannot be read.
        """
        return choices_of(self._columns("actions", ("action", "propensity")))

    def day(self) -> date | None:
        """The day, in UTC, on which it began; ``None`` if its ticks have no wall time.

        Raises:
            RecordingError: If the ticks cannot be read.
        """
        started = started_at(self._columns("ticks", ("wall_time_us", "wall_time_s")))
        return None if started is None else started.date()

    def run(self) -> RunInfo:
        """What was run."""
        return load_run(self.path)

    def load(self) -> Recording:
        """Load it."""
        return load_recording(self.path)

    def sha256(self) -> str:
        """The digest of its files.

        Raises:
            RecordingError: If a file cannot be read.
        """
        digest = hashlib.sha256()
        try:
            for file in sorted(self.path.iterdir()):
                if file.suffix in {".parquet", ".json"}:
                    digest.update(file.name.encode())
                    digest.update(file.read_bytes())
        except OSError as error:
            raise RecordingError(f"A recording cannot be read: {error}.") from error
        return digest.hexdigest()

    def _columns(self, table: str, names: Sequence[str]) -> pa.Table:
        """Those of some columns that a table of it has."""
        file = self.path / f"{table}.parquet"
        try:
            with pq.ParquetFile(file, page_checksum_verification=True) as opened:
                here = [name for name in names if name in opened.schema_arrow.names]
                return opened.read(columns=here)
        except (OSError, pa.ArrowException):
            load_recording(self.path)  # its errors say what to do
            raise


def choices_of(actions: pa.Table) -> int | None:
    """How many choices each action of a table of actions has, if there are propensities."""
    if not {"action", "propensity"} <= set(actions.column_names):
        return None
    return max((len(str(text).split(",")) for text in actions["action"].to_pylist()), default=None)


def started_at(ticks: pa.Table) -> datetime | None:
    """The wall time of the first tick; ``None`` if it is not known."""
    for name, per_unit in (("wall_time_us", 1), ("wall_time_s", 1_000_000)):
        if name in ticks.column_names and len(ticks):
            wall_us = int((ticks[name][0].as_py() or 0) * per_unit)
            if wall_us >= _FIRST_WALL_US:
                return datetime.fromtimestamp(wall_us * 1e-6, UTC)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which recordings to take; an empty field takes all."""

    scenario: str = ""
    arm: str = ""
    """The controller that ran, as it was named."""
    node: str = ""
    first_day: date | None = None
    last_day: date | None = None
    """The last day that is taken."""

    def takes(self, folder: RecordingFolder) -> bool:
        """Whether a directory's recording is taken.

        Raises:
            RecordingError: If it cannot be read.
        """
        if self.scenario not in ("", folder.scenario) or self.arm not in ("", folder.arm):
            return False
        if self.node not in ("", folder.node):
            return False
        if self.first_day is None and self.last_day is None:
            return True
        day = folder.day()
        return day is not None and (self.first_day or day) <= day <= (self.last_day or day)


def days_of(text: str) -> tuple[date | None, date | None]:
    """Read ``2026-11-27`` or ``2026-11-01..2026-11-30``, of which either end may be left out.

    Raises:
        UsageError: If it is neither.
    """
    first, two, last = text.partition("..")
    try:
        begin = date.fromisoformat(first) if first else None
        end = date.fromisoformat(last) if last else None
    except ValueError as error:
        raise UsageError(
            f"{text!r:.60} names no days: {error}.",
            next_step="Write 2026-11-27, 2026-11-01..2026-11-30, or 2026-11-01.. for all since.",
        ) from error
    return (begin, end) if two else (begin, begin)


def spread(recordings: Iterable[Stored], most: int) -> list[Stored]:
    """Choose at most so many recordings: as many of each arm and condition, evenly over time.

    Args:
        recordings: In the order of time.
        most: How many.

    Returns:
        The chosen ones in their order; all of them if there are no more.
    """
    every = list(recordings)
    if len(every) <= most:
        return every
    kinds: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for number, one in enumerate(every):
        kinds[one.condition, one.arm].append(number)
    left, chosen = most, []
    for done, mine in enumerate(sorted(kinds.values(), key=len)):
        share = min(left // (len(kinds) - done), len(mine))
        chosen += [mine[(2 * k + 1) * len(mine) // (2 * share)] for k in range(share)]
        left -= share
    return [every[number] for number in sorted(chosen)]


def dataset_hash(recordings: Iterable[StoredRecording]) -> str:
    """SHA-256 of the contents of recordings; their order does not matter.

    Raises:
        RecordingError: If a file cannot be read.
    """
    return hashlib.sha256("".join(sorted(one.sha256() for one in recordings)).encode()).hexdigest()
