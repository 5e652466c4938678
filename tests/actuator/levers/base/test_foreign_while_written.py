"""What another program writes while a lever writes is its own: it stays, and is the original."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stallward.actuator.errors import ForeignError, KernelFileError
from stallward.actuator.journal.entries import FileValue, JournalEntry
from stallward.actuator.kernel.files import read_text, write_text
from stallward.actuator.kernel.memory import limit_writes
from stallward.actuator.levers.base.held_setting import HeldSetting, LimitFile, ReclaimingFile
from stallward.actuator.levers.base.originals import Originals

OURS, THEIRS, FIRST = str(200 << 20), str(800 << 20), str(400 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raced(ReclaimingFile):
    """A limit beside whose write another program writes."""

    before: list[str] = field(default_factory=list)
    """What it writes during our write, which comes later."""
    after: list[str] = field(default_factory=list)
    """What it writes between our write and our look at it."""
    error: list[int] = field(default_factory=list)
    """The kernel's refusal of our write."""

    def write(self, value: str) -> str | None:
        theirs = self.before.pop() if self.before else None
        if theirs is not None:
            write_text(self.path, theirs)
        if self.error:
            raise KernelFileError(self.path, "refused", number=self.error.pop())
        write_text(self.path, value)
        if self.after:
            write_text(self.path, self.after.pop())
        return theirs


class Held:
    """A limit of a pod, and the journal."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "memory.limit_in_bytes"
        self.file.write_text(FIRST)
        self.journal: dict[JournalEntry, bool] = {}
        self.values: list[Sequence[str]] = []
        self.setting = Raced(path=self.file, tolerance=65536, cap=True)
        self.held = HeldSetting(self.setting, Originals(self._send, self._release, self._touch))

    def _send(self, *entries: JournalEntry) -> None:
        self.journal |= dict.fromkeys(entries, False)

    def _release(self, *entries: JournalEntry) -> None:
        for entry in entries:
            del self.journal[entry]

    def _touch(self, entry: JournalEntry, moved: bool, values: Sequence[str]) -> None:
        self.journal[entry] = moved
        self.values.append(values)

    def to_undo(self) -> list[JournalEntry]:
        return [entry for entry, moved in self.journal.items() if moved]


@pytest.fixture
def pod(tmp_path: Path) -> Held:
    return Held(tmp_path)


def test_each_write_says_from_what_to_what(pod: Held) -> None:
    pod.held.move(OURS)
    pod.held.move(str(100 << 20))
    pod.held.put_back()
    assert pod.values == [(FIRST, OURS), (OURS, str(100 << 20)), ()]
    assert pod.file.read_text() == FIRST


def race_before(pod: Held) -> None:
    pod.setting.before.append(THEIRS)


def race_after(pod: Held) -> None:
    pod.setting.after.append(THEIRS)


def race_refused(pod: Held) -> None:
    pod.setting.before.append(THEIRS)
    pod.setting.error.append(errno.EBUSY)


@pytest.mark.parametrize("held_before", [False, True])
@pytest.mark.parametrize("race", [race_before, race_after, race_refused])
def test_it_stays_whenever_it_comes(
    pod: Held, race: Callable[[Held], None], held_before: bool
) -> None:
    if held_before:
        pod.held.move(str(300 << 20))
    race(pod)
    with pytest.raises(ForeignError, match="set by another program") as caught:
        pod.held.move(OURS)
    assert caught.value.value == THEIRS
    assert pod.file.read_text() == THEIRS
    assert not pod.held.held
    assert pod.to_undo() == [], "a restore after a crash leaves it, too"
    pod.held.put_back()
    assert pod.file.read_text() == THEIRS
    pod.held.move(OURS)  # the lever has stepped aside long enough
    assert pod.to_undo() == [FileValue(pod.file, THEIRS)]
    pod.held.put_back()
    assert pod.file.read_text() == THEIRS, "it is the original now"


def test_a_smaller_one_bounds_what_is_written_later(pod: Held) -> None:
    pod.held.move(str(300 << 20))
    pod.file.write_text(str(100 << 20))  # the pod was made smaller
    with pytest.raises(ForeignError):
        pod.held.look()
    pod.held.move(OURS)
    assert pod.file.read_text() == str(100 << 20)
    pod.held.put_back()
    assert pod.file.read_text() == str(100 << 20)


def test_one_that_the_kernel_refuses_at_once_is_the_original_all_the_same(
    pod: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_setting: Raced, entry: JournalEntry) -> None:
        raise KernelFileError(pod.file, "too much in use", number=errno.EBUSY)

    with monkeypatch.context() as patch:
        patch.setattr(Raced, "put_back", refuse)
        race_before(pod)
        with pytest.raises(KernelFileError):
            pod.held.move(OURS)
    assert pod.held.held
    assert pod.to_undo() == [FileValue(pod.file, THEIRS)]
    pod.held.put_back()
    assert pod.file.read_text() == THEIRS


def test_one_that_comes_as_the_original_is_put_back_stays(
    pod: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.held.move(OURS)

    def late(_setting: Raced, entry: JournalEntry) -> None:
        write_text(pod.file, FIRST)
        write_text(pod.file, THEIRS)

    monkeypatch.setattr(Raced, "put_back", late)
    with pytest.raises(ForeignError):
        pod.held.put_back()
    assert pod.file.read_text() == THEIRS
    assert pod.to_undo() == []


def test_the_original_written_beside_a_hanging_write_is_not_foreign(pod: Held) -> None:
    pod.held.move(str(300 << 20))
    pod.held.overtake()
    pod.setting.before.append(FIRST)
    pod.held.taken = FIRST
    assert pod.held.move(OURS) == OURS
    assert pod.held.held


def test_a_v1_limit_notices_a_value_that_it_overwrites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a plain file the write takes no time; so another one is made to come before it."""
    path = tmp_path / "memory.limit_in_bytes"
    path.write_text(FIRST)

    def slow(where: Path, value: str) -> None:
        def tell(file: Path) -> str | None:
            told.append(read_text(file) or "")
            return told[-1]

        told: list[str] = []
        monkeypatch.setattr(limit_writes, "read_text", tell)
        write_text(where, THEIRS)
        while THEIRS not in told:
            pass
        write_text(where, value)

    monkeypatch.setattr(limit_writes, "write_interruptibly", slow)
    setting = LimitFile(path=path, tolerance=65536)
    assert setting.write(OURS) == THEIRS
    assert path.read_text() == OURS


def test_it_writes_where_nothing_can_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memory.limit_in_bytes"
    path.write_text(FIRST)

    def no_thread(_thread: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", no_thread)
    assert LimitFile(path=path).write(OURS) is None
    assert path.read_text() == OURS


def test_after_a_write_of_which_nobody_knows_the_outcome_any_value_may_be_ours(
    pod: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the value in force after a crash would be taken for another program's, and stay."""
    pod.held.move(OURS)
    pod.setting.error.append(errno.EIO)
    with monkeypatch.context() as patch:
        patch.setattr(HeldSetting, "_read", lambda _held: None)  # nor can it be read
        with pytest.raises(KernelFileError):
            pod.held.move(str(100 << 20))
    assert pod.file.read_text() == OURS
    pod.held.move(str(50 << 20))
    assert len(pod.values[-1]) == 0
    pod.held.move(str(60 << 20))
    assert pod.values[-1] == (str(50 << 20), str(60 << 20)), "now it is known again"


def test_a_value_that_was_never_read_back_is_known_again_as_the_kernel_rounds_it(
    pod: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else our own limit would be left in force as another program's."""
    with monkeypatch.context() as patch:
        patch.setattr(HeldSetting, "_read", lambda _held: None)
        pod.held.move(str(int(OURS) + 987))
    pod.file.write_text(OURS)  # v1 rounds down to pages
    pod.held.put_back()
    assert pod.file.read_text() == FIRST
    assert not pod.held.held
