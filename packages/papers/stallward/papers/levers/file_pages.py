"""The lever on file pages, whose victim it looks for each time.

``flush`` writes dirty pages of the victim's first file back, ``clear`` takes its file pages for
unreferenced (/proc/PID/clear_refs), ``cold`` makes them the next to be reclaimed, ``pageout``
reclaims them, ``mark``, ``activate`` and ``activate-mark`` use those in memory once, twice or three
times (by touching them in a mapping) and ``willneed`` reads them in (process_madvise), both from
within the victim's group. A thread does it, once a tick for as long as it is wanted. Nothing needs
to be undone: what was written back would have been written anyway, a page that is used again is
referenced and active again, and one that was dropped comes back when it is needed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import ABSENT, failure, read_bytes
from stallward.actuator.kernel.memory.mappings import (
    ADVICE_NUMBERS,
    Mapping,
    mappings,
    process_madvise,
)
from stallward.actuator.levers.base.lever import LeverDefaults, PlannedWrite
from stallward.actuator.levers.base.plugin import LeverEntry, ProcessSource
from stallward.actuator.levers.base.worker import Superseded, Worker
from stallward.actuator.levers.process.page_advice import CALL_BYTES, advise_ranges
from stallward.actuator.record.desired.text import file_pages_text
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import DesiredState
from stallward.agent.errors import StallwardError
from stallward.agent.file_pages import HARMLESS_FILE_ACTIONS, MARKS, FilePages
from stallward.papers.levers.file_cache import PAGE_BYTES, write_back
from stallward.papers.levers.file_page_parts import why_no_file_pages, why_not
from stallward.papers.levers.file_ranges import file_mappings, file_ranges
from stallward.papers.levers.file_victims import (
    Candidate,
    choose,
    first_mapping,
    open_mapped,
    read_candidate,
)
from stallward.papers.levers.reader.reader import Inside, Reader

FLUSH_PAGES: Final = 256
"""The most dirty pages of one file that are written back at a time (``nr_to_write`` there)."""
FLUSHED_FILES: Final = 2
"""The flush takes the largest file and the second."""
READ_IN_PAGES: Final = 32
"""The most pages of a range that are read in: the kernel reads no more of each than the disk's
readahead, of which this is the default, or its largest request."""
_FILE_MAPPED: Final = b"3"
"""What clears the bits of file pages only (Documentation/filesystems/proc.rst)."""
_UNDO: Final = "nothing to undo: pages are referenced again, and come back, as they are used"


class FilePagesLever(LeverDefaults):
    """Acts on the file pages of a victim, at every tick while that is wanted.

    Args:
        slots: The processes of each background slot.
        protected: Those of the protected application, to whom only harmless things are done.
        proc: The /proc directory.
        reader: Asks for pages that are to be read in.
    """

    name = "file_pages"

    def __init__(
        self,
        slots: Sequence[ProcessSource],
        protected: ProcessSource,
        proc: Path,
        reader: Reader,
    ) -> None:
        self._slots = tuple(slots)
        self._protected = protected
        self._proc = proc
        self._reader = reader
        self._missing = why_no_file_pages(proc)
        self._wanted: FilePages | None = None
        self._worker: Worker[FilePages | None] = Worker(self.name, self._work)

    @property
    def missing(self) -> tuple[str, ...]:
        """Why some of the actions cannot be taken here; empty if all can."""
        return tuple(f"{self.name}: {why}" for why in dict.fromkeys(self._missing.values()))

    @property
    def held(self) -> bool:
        """False: nothing needs to be undone."""
        return False

    @property
    def idle(self) -> bool:
        """Whether nothing is wanted and nothing is under way."""
        return self._wanted is None and not self._worker.busy

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Act once more, unless the last time is not over."""
        wanted, before = granted.file_pages, self._wanted
        self._wanted = wanted
        if wanted is None:
            return self._end()
        why = why_not(wanted, self._missing)
        if why:
            said = wanted == before
            value = file_pages_text(wanted)
            result = LeverResult(lever=self.name, value=value, ok=False, error=why)
            return () if said else (result,)
        if not self._worker.busy:
            self._worker.ask(wanted)
        return ()

    def _end(self) -> tuple[LeverResult, ...]:
        if self._worker.busy:
            self._worker.ask(None)
        return ()

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """The results since the last call."""
        return self._worker.poll(now_s)

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One planned write if something is newly wanted."""
        wanted = granted.file_pages
        if wanted is None or wanted == self._wanted or why_not(wanted, self._missing):
            return ()
        text = file_pages_text(wanted)
        return (PlannedWrite(lever=self.name, target=text, before="", after=text, undo=_UNDO),)

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Stop what is under way."""
        self._wanted = None
        return self._end()

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """Wait for the worker's thread."""
        if self._worker.wait(deadline_s):
            self._worker.stop()
            self._reader.close()
        return self._worker.poll(time.monotonic())

    def _work(
        self, wanted: FilePages | None, superseded: Superseded
    ) -> tuple[LeverResult, ...] | None:
        if wanted is None:
            return ()
        started_s, pages = time.monotonic(), 0
        errors: list[str] = []
        sources = self._sources(wanted, errors)
        victims = self._victims(wanted, sources, errors)
        for victim in victims:
            if superseded():
                return None
            try:
                pages += self._act(wanted, victim, sources[victim.pid], superseded)
            except (StallwardError, OSError) as error:
                errors.append(str(error))
        if superseded():
            return None
        pids = ",".join(str(victim.pid) for victim in victims) or "none"
        said = errors[0] if errors else ""
        result = LeverResult(
            lever=self.name,
            value=f"{wanted.action} {pages} pages of pid {pids}",
            ok=not said,
            error=said,
            took_ms=(time.monotonic() - started_s) * 1e3,
        )
        return (result,)

    def _sources(self, wanted: FilePages, errors: list[str]) -> dict[int, ProcessSource]:
        """The processes that may be acted on, each with where it belongs."""
        harmless = wanted.action in HARMLESS_FILE_ACTIONS
        allowed = () if wanted.victim == "protected" else self._slots
        if harmless and wanted.victim != "largest-file":
            allowed = (*allowed, self._protected)
        found: dict[int, ProcessSource] = {}
        for source in allowed:
            try:
                source.check()
                found |= dict.fromkeys(source.members(), source)
            except (StallwardError, OSError) as error:
                errors.append(str(error))
        return found

    def _victims(
        self, wanted: FilePages, sources: dict[int, ProcessSource], errors: list[str]
    ) -> list[Candidate]:
        with_file = wanted.victim == "largest-file"
        candidates = []
        for pid in sources:
            try:
                candidate = read_candidate(self._proc, pid, with_file=with_file)
            except StallwardError as error:
                errors.append(str(error))
                continue
            if candidate is not None:
                candidates.append(candidate)
        count = FLUSHED_FILES if wanted.action == "flush" else 1
        return choose(candidates, wanted.victim, count)

    def _act(
        self,
        wanted: FilePages,
        victim: Candidate,
        source: ProcessSource,
        superseded: Superseded,
    ) -> int:
        """Act on one process; return the pages that were acted on."""
        try:
            pidfd = os.pidfd_open(victim.pid)
        except OSError:
            return 0
        try:
            # The descriptor pins the process; only now is it asked whether it is a member.
            content = read_bytes(self._proc / str(victim.pid) / "maps")
            if not source.holds(victim.pid) or content is None:
                return 0
            flushed = 0
            if wanted.writeback or wanted.action == "flush":
                flushed = self._flush(victim.pid)
            if wanted.action == "flush":
                return flushed
            return self._handle(victim.pid, pidfd, list(mappings(content)), wanted, superseded)
        except ProcessLookupError:
            return 0
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise KernelFileError(
                f"process {victim.pid}",
                f"{wanted.action} failed ({reason})",
                number=error.errno or 0,
            ) from error
        finally:
            os.close(pidfd)

    def _handle(
        self,
        pid: int,
        pidfd: int,
        found: Sequence[Mapping],
        wanted: FilePages,
        superseded: Superseded,
    ) -> int:
        """Do all that is not writing back; return the pages that were acted on."""
        if wanted.action == "clear":
            return self._clear(pid)
        if wanted.action in MARKS:
            return self._mark(pid, found, wanted, superseded)
        number, grab_pages = ADVICE_NUMBERS[wanted.action], wanted.grab_pages
        if wanted.action == "willneed":
            grab_pages = min(grab_pages, READ_IN_PAGES)
        ranges = file_ranges(found, wanted.scope, grab_pages * PAGE_BYTES)
        if wanted.action != "willneed":
            done = advise_ranges(process_madvise, pidfd, ranges, number, superseded)
        else:
            with self._reader.within(pid, superseded) as inside:
                done = advise_ranges(inside.advise, pidfd, ranges, number, superseded)
        return done // PAGE_BYTES

    def _flush(self, pid: int) -> int:
        first = first_mapping(self._proc, pid)
        if first is None or first.file is None:
            return 0
        try:
            fd = open_mapped(self._proc, pid, first)
        except OSError as error:
            if error.errno in ABSENT:
                return 0
            raise failure(self._proc / str(pid) / "map_files", error, "open a file in") from error
        try:
            return write_back(fd, FLUSH_PAGES)
        finally:
            os.close(fd)

    def _mark(
        self, pid: int, found: Sequence[Mapping], wanted: FilePages, superseded: Superseded
    ) -> int:
        with self._reader.within(pid, superseded, reads=False) as inside:
            return sum(
                self._mark_mapping(inside, pid, mapping, wanted, superseded)
                for mapping in file_mappings(found, wanted.scope)
            )

    def _mark_mapping(
        self,
        inside: Inside,
        pid: int,
        mapping: Mapping,
        wanted: FilePages,
        superseded: Superseded,
    ) -> int:
        try:
            fd = open_mapped(self._proc, pid, mapping)
        except OSError as error:
            if error.errno in ABSENT:
                return 0
            raise
        marked = 0
        try:
            for offset in range(0, mapping.length, CALL_BYTES):
                for _ in range(MARKS[wanted.action]):
                    if superseded():
                        return marked
                    pages = inside.mark(
                        fd,
                        mapping.offset + offset,
                        min(CALL_BYTES, mapping.length - offset),
                    )
                marked += pages
        finally:
            os.close(fd)
        return marked

    def _clear(self, pid: int) -> int:
        """Clear the bits of a process's file pages; return how many are resident."""
        folder = self._proc / str(pid)
        try:
            fd = os.open(folder / "clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in ABSENT:
                return 0
            raise failure(folder / "clear_refs", error, "open") from error
        try:
            os.write(fd, _FILE_MAPPED)
        finally:
            os.close(fd)
        words = (read_bytes(folder / "statm") or b"").split()
        return int(words[2]) if len(words) > 2 and words[2].isdigit() else 0


FILE_PAGES: Final = LeverEntry(
    name=FilePagesLever.name,
    make=lambda site: FilePagesLever(
        site.slots, site.protected, site.proc, Reader(site.hierarchy, site.proc)
    ),
    lacks=why_no_file_pages,
)
