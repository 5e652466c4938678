"""A write that blocks in the kernel keeps nothing else from being put back."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from stallward.actuator.errors import ActuatorError
from stallward.actuator.journal.entries import FileValue, Frozen
from stallward.actuator.journal.restore import restore, run_bounded
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.runtime.temporary_folders import remove_folder


def test_an_action_that_blocks_holds_up_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = run_bounded.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "give_up_s", 0.5)  # in place of 2 s
    hung, knobs = tmp_path / "cgroup.freeze", [tmp_path / f"{n}/memory.high" for n in range(20)]
    os.mkfifo(hung)  # opening it for writing blocks until another process reads
    for knob in knobs:
        knob.parent.mkdir()
        knob.write_text("90")
    (problem,) = restore(
        [Frozen(hung), *(FileValue(k, "60") for k in knobs)], Paths(cgroup=tmp_path)
    )
    assert str(hung) in str(problem)
    assert "not done after" in str(problem)
    assert [knob.read_text() for knob in knobs] == ["60"] * 20
    reader = os.open(hung, os.O_RDONLY)
    assert os.read(reader, 10) == b"0", "it goes on by itself"
    os.close(reader)


def test_everything_runs_in_order_where_nothing_blocks() -> None:
    seen: list[int] = []
    assert run_bounded([partial(seen.append, n) for n in range(50)]) == ()
    assert seen == list(range(50))


def test_many_that_block_do_not_starve_the_last() -> None:
    never, done = threading.Event(), threading.Event()
    actions = [partial(never.wait, 20.0)] * 5 + [done.set]
    problems = run_bounded(actions, patience_s=0.01, give_up_s=0.8)
    assert done.is_set()
    assert len(problems) == 5
    never.set()


def test_failures_are_said_in_order() -> None:
    def fail(text: str) -> None:
        time.sleep(0.02 if text == "first" else 0.0)
        raise ActuatorError(text)

    actions = [partial(fail, "first"), partial(fail, "second")]
    failures = run_bounded(actions, patience_s=0.005)
    assert [failure.why for failure in failures] == ["first", "second"]


def test_only_folders_of_our_own_are_removed(tmp_path: Path) -> None:
    ours, foreign = tmp_path / "stallward-1", tmp_path / "home"
    for folder in (ours / "deep", foreign):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    link = tmp_path / "stallward-link"
    link.symlink_to(foreign)
    remove_folder(ours)
    remove_folder(ours)
    assert not ours.exists()
    for other in (foreign, link):
        with pytest.raises(ActuatorError, match="left alone"):
            remove_folder(other)
    assert (foreign / "file").exists()


def test_a_folder_that_is_still_written_into_is_removed_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "stallward-1"
    folder.mkdir()
    until_s = time.monotonic() + 0.05

    def write() -> None:
        number = 0
        while time.monotonic() < until_s:
            with contextlib.suppress(FileNotFoundError):
                (folder / str(number)).write_text("x")
            number += 1

    threads = [
        threading.Thread(target=write),
        threading.Thread(target=remove_folder, args=[folder]),
    ]
    for thread in threads:
        thread.start()
    remove_folder(folder)
    for thread in threads:
        thread.join()
    assert not folder.exists()
