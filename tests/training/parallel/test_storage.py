"""A copy of a run on shared storage: what is there comes back, and what is refused says why."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from stallward.env.errors import StorageError
from stallward.evaluation.cli import main
from stallward.training.errors import DatasetError
from stallward.training.parallel.choose import open_executor
from stallward.training.parallel.executor import Job
from stallward.training.parallel.storage import Storage, parts_of
from stallward.training.progress import Report, silent


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path}/shared/run"
        return
    MemoryFileSystem.store.clear()
    yield "memory://bucket/run"
    MemoryFileSystem.store.clear()


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_run_goes_on_on_another_machine(url: str, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "seeds/1").mkdir(parents=True)
    (here / "seeds/1/policy.zip").write_bytes(b"\x00\x01")
    (here / "seeds/1/training.json").write_text("{}")
    (here / "seeds/.policy.zip.7.partial").write_text("unfinished")
    Storage(url, here).store()
    Storage(url, there).fetch()
    assert content(there) == {"seeds/1/policy.zip": b"\x00\x01", "seeds/1/training.json": b"{}"}


def test_what_is_here_is_newer_and_what_is_removed_here_is_removed_there(
    url: str, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (here / "a").write_text("old")
    (here / "b").write_text("b")
    Storage(url, here).store()
    (here / "a").write_text("newer")
    again = Storage(url, here)
    again.fetch()
    assert (here / "a").read_text() == "newer"
    (here / "b").unlink()
    again.store()
    Storage(url, there).fetch()
    assert content(there) == {"a": b"newer"}


def test_what_another_machine_did_since_comes_back(url: str, tmp_path: Path) -> None:
    """Three runs of a command that adds lines to its file: here, on another machine, here again."""
    for out, line in (("here", "one"), ("there", "two"), ("here", "three")):
        copy = Storage(url, tmp_path / out)
        copy.fetch()
        (tmp_path / out).mkdir(exist_ok=True)
        with (tmp_path / out / "trials").open("a") as file:
            file.write(f"{line} ")
        copy.store()
    Storage(url, tmp_path / "new").fetch()
    assert content(tmp_path / "new") == {"trials": b"one two three "}


def test_hidden_files_of_the_storage_stay_there(tmp_path: Path) -> None:
    shared, out = tmp_path / "shared", tmp_path / "out"
    (shared / ".snapshots").mkdir(parents=True)
    (shared / ".snapshots/1").write_text("not ours")
    copy = Storage(f"file://{shared}", out)
    copy.fetch()
    copy.store()
    assert content(shared) == {".snapshots/1": b"not ours"}
    assert not out.exists()


def test_an_output_that_is_a_file_is_alone(url: str, tmp_path: Path) -> None:
    (tmp_path / "rule.toml").write_text("[thresholds]\n")
    (tmp_path / "another").write_text("not ours")
    Storage(url, tmp_path / "rule.toml").store()
    Storage(url, tmp_path / "there").fetch()
    assert content(tmp_path / "there") == {"rule.toml": b"[thresholds]\n"}
    Storage(url, tmp_path / "new/pi.toml").fetch()
    assert not (tmp_path / "new").exists(), "the storage has another file"


def test_the_parts_of_an_output_that_is_a_file_go_with_it(url: str, tmp_path: Path) -> None:
    rule = tmp_path / "here/rule.toml"
    for out in (rule, rule.with_name("pi.toml")):
        parts_of(out).mkdir(parents=True)
        (parts_of(out) / "1.json").write_text(out.name)
    (parts_of(rule) / ".2.json.7.partial").write_text("unfinished")
    Storage(url, rule).store()
    Storage(url, tmp_path / "new/pi.toml").fetch()
    assert not (tmp_path / "new").exists(), "they are parts of another file"
    Storage(url, tmp_path / "there/rule.toml").fetch()
    (tmp_path / "there/.rule.toml.stored").unlink()
    assert content(tmp_path / "there") == {"rule.toml.parts/1.json": b"rule.toml"}


def test_each_result_is_stored_as_soon_as_it_is_kept(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, there = tmp_path / "out", tmp_path / "there"

    def keep(number: int, text: str) -> None:
        out.mkdir(exist_ok=True)
        (out / f"{number}").write_text(text)

    def fail(_report: object) -> str:
        Storage(url, there).fetch()
        raise DatasetError("no more")

    jobs = [Job("one", lambda _: "done"), Job("two", fail)]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with pytest.raises(DatasetError), open_executor(None, url, out) as executor:
        executor.run(jobs, silent, keep=keep)
    assert content(there) == {"0": b"done"}


class Refusing:
    """A command of three jobs whose storage takes what the first one left, and no more.

    Args:
        folder: Where its output and its storage are.
    """

    def __init__(self, folder: Path) -> None:
        self.out, self.shared = folder / "out", folder / "shared"
        self.ran: list[str] = []
        self.jobs = [
            Job("one", lambda _: self._work("one")),
            Job("two", self._refuse),
            Job("three", lambda _: self._work("three")),
        ]

    def run(self) -> None:
        """Run the jobs that are missing."""
        missing = [job for job in self.jobs if not (self.out / job.name).exists()]

        def keep(number: int, text: str) -> None:
            self.out.mkdir(exist_ok=True)
            (self.out / missing[number].name).write_text(text)

        with open_executor(None, f"file://{self.shared}", self.out) as executor:
            executor.run(missing, silent, keep=keep)

    def _work(self, name: str) -> str:
        self.ran.append(name)
        return name

    def _refuse(self, _report: Report) -> str:
        self.shared.rename(self.shared.with_name("unmounted"))
        self.shared.write_text("no directory any more")
        return self._work("two")

    def mend(self) -> None:
        """Bring the storage back."""
        self.shared.unlink()
        self.shared.with_name("unmounted").rename(self.shared)


@pytest.fixture
def one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs run in this process."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})


@pytest.mark.usefixtures("one_after_the_other")
def test_storage_that_refuses_in_the_middle_costs_nothing_that_is_done(tmp_path: Path) -> None:
    command = Refusing(tmp_path)
    with pytest.raises(StorageError, match=r"cannot be written.*kept in --out.*goes on"):
        command.run()
    assert content(command.out) == {"one": b"one", "two": b"two"}
    assert content(tmp_path / "unmounted") == {"one": b"one"}
    command.mend()
    command.run()
    assert command.ran == ["one", "two", "three"], "nothing was done again"
    assert content(command.shared) == {name: name.encode() for name in ("one", "two", "three")}


@pytest.mark.usefixtures("one_after_the_other")
@pytest.mark.parametrize("error", [DatasetError("no more"), KeyboardInterrupt()])
def test_storage_that_refuses_does_not_hide_why_the_command_ended(
    error: BaseException, tmp_path: Path
) -> None:
    out, shared = tmp_path / "out", tmp_path / "shared"

    def fail(_report: Report) -> str:
        shared.rename(tmp_path / "unmounted")
        shared.write_text("no directory any more")
        (out / "late").write_text("not stored")
        raise error

    out.mkdir()
    with (
        pytest.raises(type(error)) as caught,
        open_executor(None, f"file://{shared}", out) as executor,
    ):
        executor.run([Job("it", fail)], silent)
    assert caught.value is error
    (note,) = error.__notes__
    assert f"{shared} cannot be written" in note
    assert "the same command goes on" in note


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("file://{}/a-file/run", "cannot be written"),
        ("s3x://bucket/run", "s3x"),
        ("file:///proc/self/run", "cannot be written"),
    ],
)
def test_storage_that_refuses_is_named_before_any_work(
    place: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a-file").write_text("")
    where = place.format(tmp_path)
    with pytest.raises(StorageError, match=says), open_executor(None, where, tmp_path / "out"):
        pytest.fail("the work began")
    out = tmp_path / "run"
    assert main(["train", "--out", str(out), "--storage", where]) == 2
    error = capsys.readouterr().err
    assert where in error
    assert says in error
    assert "Traceback" not in error
    assert not out.exists()


def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(StorageError, match="gcsfs"):
        Storage("gs://bucket/run", tmp_path)
