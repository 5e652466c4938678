"""Places in the touch table are used again: pods come and go for as long as a daemon runs."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.errors import JournalError
from stallward.actuator.guardian.held_journal import HeldJournal
from stallward.actuator.ipc.channels import BEAT, GuardianLink
from stallward.actuator.ipc.shared_memory import PLACES
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import FileValue, Noted
from stallward.actuator.kernel.paths import Paths

_EACH: int = 8


class Daemon:
    """A guardian's journal, and the loop's link to it with the memory that they share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk_is_full = False
        paths = Paths(proc=folder / "proc", cgroup=folder)
        self.held = HeldJournal(Journal(folder / "journal", paths), paths)
        memory = self.held.share(["slot"])
        ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link = GuardianLink(ours, timeout_s=5.0, memory=memory)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(ConnectionResetError):  # closed before all answers were read
            while message := self._theirs.recv(1 << 20):
                if self.disk_is_full:
                    self._answer(b"!No space left on device.")
                elif message != BEAT:
                    self.held.take(message, self._answer)

    def _answer(self, answer: bytes) -> None:
        self._theirs.send(answer)

    def entries(self, pod: int) -> list[FileValue]:
        """The originals of one pod's files."""
        folder = self.folder / f"pod{pod}"
        folder.mkdir()
        made = [FileValue(folder / f"{i}" / "memory.high", "max") for i in range(_EACH)]
        for entry in made:
            entry.path.parent.mkdir()
            entry.path.write_text("12345")
        return made

    def close(self) -> None:
        self.link.connection.close()
        self._thread.join()
        self._theirs.close()
        self.held.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path)
    yield made
    made.close()


@pytest.mark.slow
def test_a_thousand_pods_take_the_places_of_a_few_and_each_is_undone_by_its_own(
    daemon: Daemon,
) -> None:
    last: list[FileValue] = []
    for pod in range(1000):
        entries = daemon.entries(pod)
        daemon.link.hold_all(entries)
        daemon.link.touch(entries[0], moved=True)
        daemon.link.release(*last)
        last = entries
    held = [entry for entry in daemon.link._held.values() if isinstance(entry, Noted)]
    assert len(held) == _EACH, "each entry has a place, so that untouched ones are not undone"
    assert max(entry.place for entry in held) < 3 * _EACH < PLACES
    daemon.link.hold_all(daemon.entries(1000))  # by the answer, everything before it was read
    assert daemon.link.held == (held[0],), "of all pods, only the last one is changed now"
    assert daemon.held.restore() == ()
    assert [entry.path.read_text() for entry in last] == ["max"] + ["12345"] * (_EACH - 1)
    assert (daemon.folder / "pod998/0/memory.high").read_text() == "12345"


def test_entries_that_are_refused_again_and_again_take_one_place_each(daemon: Daemon) -> None:
    entries = daemon.entries(0)
    daemon.disk_is_full = True
    for _ in range(100):
        with pytest.raises(JournalError, match="No space"):
            daemon.link.hold_all(entries)
    daemon.disk_is_full = False
    daemon.link.hold_all(entries)
    held = [entry for entry in daemon.link._held.values() if isinstance(entry, Noted)]
    assert sorted(entry.place for entry in held) == list(range(_EACH))
