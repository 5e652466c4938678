"""A memory limit that is being written when the loop stops, and the short limit of reclaim."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stallward.actuator.errors import KernelFileError
from stallward.actuator.journal.entries import FileValue, JournalEntry
from stallward.actuator.kernel.files import write_text
from stallward.actuator.levers.base.held_setting import LimitFile
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.cgroup.memory_limit import LimitSpec, MemoryLimitLever
from stallward.actuator.levers.cgroup.reclaim import ReclaimLever, ReclaimSpec
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import MIB, DesiredState, SlotDesire

NO_LIMIT = "9223372036854771712"
UNREACHED = str(308 * MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowFile(LimitFile):
    """A file that blocks on one limit until the test releases it, as v1 does while it reclaims."""

    begun: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)

    def write(self, value: str) -> None:
        if value == UNREACHED:
            self.begun.set()
            assert self.reached.wait(20)
        write_text(self.path, value)


class Slot:
    """The limit and the reclaim of one v1 group."""

    def __init__(self, folder: Path) -> None:
        self.limit_file, self.usage = folder / "limit", folder / "usage"
        self.limit_file.write_text(NO_LIMIT)
        self.usage.write_text(str(360 * MIB))
        self.original = FileValue(self.limit_file, NO_LIMIT)
        self.sent: list[JournalEntry] = []
        self.released: list[JournalEntry] = []
        self.touched: dict[JournalEntry, bool] = {}
        self.setting = SlowFile(path=self.limit_file)
        self.lock = lock = threading.Lock()
        originals = Originals(
            lambda *e: self.sent.extend(e),
            lambda *e: self.released.extend(e),
            lambda entry, moved, _values: self.touched.__setitem__(entry, moved),
        )
        self.limit = MemoryLimitLever(
            LimitSpec(
                name="limit:bg",
                setting=self.setting,
                usage=self.usage,
                value_of=lambda granted: granted.slot(0).limit_bytes,
            ),
            originals,
            lock=lock,
        )
        self.reclaim = ReclaimLever(
            ReclaimSpec(
                name="reclaim:bg",
                usage=self.usage,
                limit=self.limit_file,
                target_of=lambda granted: granted.slot(0).reclaim_to_bytes,
                lock=lock,
            ),
            originals,
        )

    def wish_for(self, limit_bytes: int) -> None:
        self.limit.apply(DesiredState(slots=(SlotDesire(limit_bytes=limit_bytes),)), 1.0)

    def stop_in_a_write(self) -> tuple[LeverResult, ...]:
        """Set one limit, and stop while a lower one is being written."""
        self.wish_for(340 * MIB)
        assert self.limit._worker.wait(time.monotonic() + 5)
        assert self.limit_file.read_text() == str(340 * MIB)
        self.wish_for(int(UNREACHED))
        assert self.setting.begun.wait(5)
        self.limit.restore(2.0)
        return self.limit.finish(time.monotonic() + 0.02)


@pytest.fixture
def slot(tmp_path: Path) -> Slot:
    return Slot(tmp_path)


def test_an_own_write_under_way_at_the_stop_is_no_foreign_change(slot: Slot) -> None:
    results = slot.stop_in_a_write()
    try:
        assert [result.error for result in results if not result.ok] == []
        assert slot.limit_file.read_text() == NO_LIMIT
        assert slot.limit.held, "that write may yet succeed: the loop must not end in order"
        assert slot.touched[slot.original], "so that the guardian undoes it once it is dead"
        assert slot.released == []
    finally:
        slot.setting.reached.set()


def test_a_write_that_succeeds_after_all_is_put_back_by_its_own_thread(slot: Slot) -> None:
    slot.stop_in_a_write()
    slot.setting.reached.set()
    assert slot.limit._worker.wait(time.monotonic() + 5)
    assert slot.limit_file.read_text() == NO_LIMIT
    assert not slot.limit.held
    assert not slot.touched[slot.original]
    assert slot.limit.foreign_total == 0


def test_an_original_that_is_refused_stays_held(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_file: LimitFile, entry: JournalEntry) -> None:
        slot.limit_file.write_text("-1")  # no limit rather than a stuck one
        raise KernelFileError(slot.limit_file, "busy", number=errno.EBUSY)

    monkeypatch.setattr(SlowFile, "put_back", refuse)
    results = slot.stop_in_a_write()
    slot.setting.reached.set()
    assert not results[-1].ok
    assert slot.limit._worker.wait(time.monotonic() + 5)
    assert slot.limit.held
    assert slot.touched[slot.original]
    assert slot.limit.foreign_total == 0


def test_the_short_limit_of_reclaim_is_no_original(slot: Slot) -> None:
    with slot.lock:  # as reclaim does between setting it and taking it back
        slot.limit_file.write_text(str(320 * MIB))
        slot.wish_for(340 * MIB)
        time.sleep(0.05)
        slot.limit_file.write_text(NO_LIMIT)
    assert slot.limit._worker.wait(time.monotonic() + 5)
    assert slot.limit_file.read_text() == str(340 * MIB), "not capped by it"
    assert slot.sent == [], "nor noted: the original is"
    slot.limit.restore(2.0)
    slot.limit.finish(time.monotonic() + 5)
    assert slot.limit_file.read_text() == NO_LIMIT


def evict(slot: Slot, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, str], None]) -> None:
    module = "stallward.actuator.levers.cgroup.reclaim"
    monkeypatch.setattr(f"{module}.write_text", write)
    monkeypatch.setattr(f"{module}.write_watched", lambda path, value, _ours: write(path, value))
    slot.reclaim.apply(DesiredState(slots=(SlotDesire(reclaim_to_bytes=int(UNREACHED)),)), 1.0)


def test_a_short_limit_under_way_at_the_stop_is_held(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(_path: Path, value: str) -> None:
        slot.setting.write(value)
        slot.usage.write_text(UNREACHED)

    evict(slot, monkeypatch, write)
    assert slot.setting.begun.wait(5)
    slot.reclaim.restore(2.0)
    slot.reclaim.finish(time.monotonic() + 0.02)
    assert slot.reclaim.held, "it may yet be set: the loop must not end in order"
    assert slot.touched[slot.original]
    slot.setting.reached.set()
    assert slot.reclaim._worker.wait(time.monotonic() + 5)
    assert slot.limit_file.read_text() == NO_LIMIT
    assert not slot.reclaim.held
    assert not slot.touched[slot.original]


def test_a_short_limit_is_held_until_it_is_taken_back(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, value: str) -> None:
        slot.usage.write_text(UNREACHED)
        if value == NO_LIMIT and refused:
            raise KernelFileError(path, "busy", number=errno.EBUSY)
        write_text(path, value)

    refused = [True]
    evict(slot, monkeypatch, write)
    slot.setting.reached.set()
    assert slot.reclaim._worker.wait(time.monotonic() + 5)
    assert slot.limit_file.read_text() == UNREACHED
    for _ in range(2):
        assert slot.reclaim.held
        assert slot.touched[slot.original]
        slot.reclaim.restore(2.0)
        slot.reclaim.finish(time.monotonic() + 5)
        refused.clear()
    assert slot.limit_file.read_text() == NO_LIMIT
    assert not slot.reclaim.held
    assert not slot.touched[slot.original]


def test_a_short_limit_that_is_refused_holds_nothing(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, value: str) -> None:
        raise KernelFileError(path, "denied", number=errno.EPERM)

    evict(slot, monkeypatch, write)
    assert slot.reclaim._worker.wait(time.monotonic() + 5)
    assert [result.ok for result in slot.reclaim.poll(2.0)] == [False]
    assert not slot.reclaim.held
    assert not slot.touched[slot.original]


def test_the_short_limit_gives_way_to_one_that_another_program_set(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether that comes before the short limit takes effect, or right after."""
    theirs = str(500 * MIB)
    for overwritten in (True, False):
        slot.limit_file.write_text(NO_LIMIT)

        def write(
            path: Path, value: str, ours: Callable[[str], bool], *, over: bool = overwritten
        ) -> str | None:
            assert ours(value)
            assert not ours(theirs)
            slot.usage.write_text(str(200 * MIB))
            write_text(path, value if over else theirs)
            return theirs if over else None

        monkeypatch.setattr("stallward.actuator.levers.cgroup.reclaim.write_watched", write)
        slot.usage.write_text(str(360 * MIB))
        target = (300 + overwritten) * MIB
        slot.reclaim.apply(DesiredState(slots=(SlotDesire(reclaim_to_bytes=target),)), 1.0)
        assert slot.reclaim._worker.wait(time.monotonic() + 5)
        assert slot.limit_file.read_text() == theirs
        assert not any(slot.touched.values())


def test_a_short_limit_that_another_program_replaced_is_not_taken_back(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, value: str) -> None:
        raise KernelFileError(path, "refused", number=errno.EIO)

    module = "stallward.actuator.levers.cgroup.reclaim.write_text"
    with monkeypatch.context() as patch:
        patch.setattr(module, refuse)
        slot.reclaim.apply(DesiredState(slots=(SlotDesire(reclaim_to_bytes=300 * MIB),)), 1.0)
        assert slot.reclaim._worker.wait(time.monotonic() + 5)
    assert slot.reclaim.held
    slot.limit_file.write_text(str(500 * MIB))
    slot.reclaim.restore(2.0)
    slot.reclaim.finish(time.monotonic() + 5)
    assert not slot.reclaim.held
    assert slot.limit_file.read_text() == str(500 * MIB)


@pytest.mark.parametrize("noted_by", ["reclaim", "limit"])
def test_a_temporary_limit_that_was_set_is_taken_back_though_the_look_at_it_failed(
    slot: Slot, monkeypatch: pytest.MonkeyPatch, noted_by: str
) -> None:
    before = NO_LIMIT
    if noted_by == "limit":
        before = str(340 * MIB)
        slot.wish_for(340 * MIB)
        assert slot.limit._worker.wait(time.monotonic() + 5)
    failing = True

    def set_and_fail(path: Path, value: str, _is_ours: object) -> str | None:
        path.write_text(value)
        if failing:
            raise KernelFileError(path, "cannot read", number=errno.EIO)
        return None

    monkeypatch.setattr("stallward.actuator.levers.cgroup.reclaim.write_watched", set_and_fail)
    with pytest.raises(KernelFileError):
        slot.reclaim._limit_briefly(slot.limit_file, 100 * MIB)
    assert slot.limit_file.read_text() == before
    assert not slot.reclaim.held
    if noted_by == "reclaim":
        assert not slot.touched[slot.original]

    def refuse(path: Path, value: str) -> None:
        raise KernelFileError(path, f"cannot write {value}", number=errno.ENOMEM)

    with monkeypatch.context() as patch:
        patch.setattr("stallward.actuator.levers.cgroup.reclaim.write_text", refuse)
        with pytest.raises(KernelFileError):
            slot.reclaim._limit_briefly(slot.limit_file, 100 * MIB)
    assert slot.limit_file.read_text() == str(100 * MIB)
    assert slot.reclaim.held, "it is tried again"
    slot.reclaim._take_back()
    assert slot.limit_file.read_text() == before
    assert not slot.reclaim.held
