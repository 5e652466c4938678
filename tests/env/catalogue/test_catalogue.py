"""A catalogue holds recordings once and whole, is read lazily, and says what is wrong with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from stallward.env.catalogue import add as adding
from stallward.env.catalogue.add import Added, add_recordings
from stallward.env.catalogue.find import find_recordings, recording_folders
from stallward.env.catalogue.read import Catalogue, CatalogueRecording
from stallward.env.errors import CatalogueError, RecordingError, StorageError
from stallward.env.recording.recording import Recording
from stallward.env.recording.stored import RecordingFolder, Selection, dataset_hash, spread
from stallward.evaluation.cli import main

SHIPPED = Path(__file__).parents[3] / "recordings"
NAMES = (
    "detector-anon-alone-s1",  # no units, and no wall time
    "detector-anon-background-s1",  # no requests
    "detector-anon-excite-s1",
    "detector-anon-none-s1",
    "groonga-mix-background-v1",  # with a wall time
)
PATHS = [SHIPPED / name for name in NAMES]
DAY = date(2026, 11, 20)


@pytest.fixture(params=["path", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "path":
        yield str(tmp_path / "catalogue")
        return
    MemoryFileSystem.store.clear()
    yield "memory://bucket/catalogue"
    MemoryFileSystem.store.clear()


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "catalogue")


def add(url: str, paths: list[Path] | None = None) -> Added:
    return add_recordings(PATHS if paths is None else paths, url, node="edge-7", day=DAY)


def assert_equal(one: Recording, other: Recording) -> None:
    assert one.run == other.run
    for mine, theirs in ((one.ticks, other.ticks), (one.actions, other.actions)):
        assert mine.keys() == theirs.keys()
        for name, column in mine.items():
            np.testing.assert_array_equal(column, theirs[name], name)
    for part in ("requests", "units"):
        mine, theirs = getattr(one, part), getattr(other, part)
        for name in mine.__slots__:
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
            assert getattr(mine, name).dtype == getattr(theirs, name).dtype


def test_what_comes_out_is_what_was_added(url: str) -> None:
    added = add(url)
    assert sorted(added.added) == sorted(NAMES)
    assert (added.known, added.refused) == (0, ())
    found = {one.name: one for one in Catalogue(url).recordings()}
    assert sorted(found) == sorted(NAMES)
    for path in PATHS:
        stored, folder = found[path.name], RecordingFolder.open(path)
        assert_equal(stored.load(), folder.load())
        for name in ("scenario", "condition", "arm", "oom_kills"):
            assert getattr(stored, name) == getattr(folder, name)
        assert stored.requests() == folder.requests()
        assert stored.choices() == folder.choices()
    assert dataset_hash(found.values()) == dataset_hash(map(RecordingFolder.open, PATHS))


def test_a_recording_of_several_applications_is_refused(url: str, tmp_path: Path) -> None:
    path = shutil.copytree(PATHS[0], tmp_path / PATHS[0].name)
    run = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**run, "other_applications": ["web"]}))
    shutil.copy(path / "requests.parquet", path / "requests-web.parquet")
    ((refused, why),) = add(url, [path]).refused
    assert refused == path
    assert "several protected applications" in why


def test_a_recording_is_added_once(url: str) -> None:
    add(url, PATHS[:2])
    again = add(url, [*PATHS[:3], PATHS[2]])
    assert again.added == (NAMES[2],)
    assert again.known == 3
    assert sorted(one.name for one in Catalogue(url).recordings()) == sorted(NAMES[:3])


def test_what_two_commands_added_at_one_time_is_found_once(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adding, "_known", lambda *_: (set(), {}))  # neither sees the other
    add(place, PATHS[:2])
    add(place, PATHS[1:3])
    found = Catalogue(place).recordings()
    assert sorted(one.name for one in found) == sorted(NAMES[:3])
    rows = Catalogue(place).runs(("sha256", "started"))
    assert len(rows) == 4, "nothing was written twice, so nothing is tested"


def test_selections_read_only_the_files_of_their_days(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(place)
    shutil.rmtree(Path(place) / "runs/node=edge-7/day=2026-11-27", ignore_errors=True)
    add_recordings([PATHS[2]], f"{place}2", node="other", day=DAY)
    shutil.copytree(f"{place}2", place, dirs_exist_ok=True)
    old = Path(place) / f"runs/node=edge-7/day={DAY}"
    for file in old.iterdir():
        file.write_bytes(b"torn")

    def names(**fields: object) -> list[str]:
        return [one.name for one in find_recordings([place], Selection(**fields))]  # type: ignore[arg-type]

    assert names(node="other") == [NAMES[2]]
    assert names(node="other", arm="none") == []
    assert names(node="other", scenario="detector-anon", first_day=DAY, last_day=DAY) == [NAMES[2]]
    assert names(last_day=date(2026, 11, 19)) == []
    with pytest.raises(CatalogueError, match=r"damaged.*edge-7/day="):
        names()


def test_places_that_overlap_give_each_recording_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, place = tmp_path / "recordings", str(tmp_path / "catalogue")
    for path in PATHS[2:4]:
        shutil.copytree(path, folder / path.name)
    add(place, PATHS[2:4])
    monkeypatch.chdir(folder)
    assert len(recording_folders([folder, folder / NAMES[2], Path(NAMES[3])])) == 2
    overlapping: list[list[str | Path]] = [
        [folder, folder / NAMES[2]],
        [place, folder],
        [folder, place, place],
    ]
    for places in overlapping:
        assert sorted(one.name for one in find_recordings(places)) == sorted(NAMES[2:4])


def test_directories_are_selected_in_the_same_way(tmp_path: Path) -> None:
    for path in PATHS:
        shutil.copytree(path, tmp_path / path.name)

    def names(**fields: object) -> list[str]:
        return [one.name for one in find_recordings([tmp_path], Selection(**fields))]  # type: ignore[arg-type]

    assert names(scenario="groonga-mix") == [NAMES[4]]
    assert names(arm="excite") == [NAMES[2]]
    assert names(first_day=date(2026, 1, 1)) == [NAMES[4]], "the others have no wall time"
    assert names(last_day=date(2026, 1, 1)) == []
    assert names(node="edge-7") == []


def test_pyarrow_and_duckdb_open_it(place: str) -> None:
    add(place)
    ticks = Catalogue(place).dataset("ticks")
    assert {"node", "day", "arm", "recording", "slot0_anon_bytes"} <= set(ticks.schema.names)
    rows = ticks.count_rows(filter=(ds.field("arm") == "excite") & (ds.field("day") == DAY))
    assert rows == len(RecordingFolder.open(PATHS[2]).load().ticks["time_s"])
    duckdb = pytest.importorskip("duckdb")
    sojourn = duckdb.sql(
        f"SELECT arm, count(*), any_value(node) FROM read_parquet('{place}/requests/**/*.parquet',"
        " hive_partitioning=true, union_by_name=true) WHERE arm = 'excite' GROUP BY arm"
    ).fetchall()
    assert sojourn == [("excite", RecordingFolder.open(PATHS[2]).requests(), "edge-7")]


def test_what_cannot_be_added_is_named_and_the_rest_is_added(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in PATHS[:3]:
        shutil.copytree(path, tmp_path / "rec" / path.name)
    run_file = tmp_path / "rec" / NAMES[0] / "run.json"
    run_file.write_text(json.dumps({**json.loads(run_file.read_text()), "schema": 9}))
    ticks = tmp_path / "rec" / NAMES[1] / "ticks.parquet"
    ticks.write_bytes(ticks.read_bytes()[:-100])
    command = ["catalogue", "add", str(tmp_path / "rec"), "--to", place]
    assert main([*command, "--day", "2026-11-20", "--node", "edge-7"]) == 1
    shown = capsys.readouterr()
    assert "recording schema 9" in shown.err
    assert "ticks.parquet is truncated" in shown.err
    assert "1 added" in shown.out
    assert "2 refused" in shown.out
    assert [one.name for one in Catalogue(place).recordings()] == [NAMES[2]]
    assert main([*command, "--day", "2026-11-20"]) == 1
    assert "0 added" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--day", "2026-11-20"], "--node"),
        (["--node", "edge-7"], "--day"),
        (["--node", "../up", "--day", "2026-11-20"], "cannot be the name of a node"),
        (["--node", "edge-7", "--day", "soon"], "names no days"),
    ],
)
def test_what_a_recording_does_not_say_is_asked_for(
    options: list[str], says: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["catalogue", "add", str(PATHS[2]), "--to", place, *options]) in {1, 2}
    assert says in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_an_interrupted_batch_is_not_there_and_the_next_command_completes_it(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(adding, "_parquet_bytes", fail)
        with pytest.raises(KeyboardInterrupt):
            add(place)
    assert Catalogue(place).recordings() == []
    add(place)
    assert len(Catalogue(place).recordings()) == len(PATHS)
    left = [path for path in Path(place).rglob("*") if path.is_file() and "partial" in path.name]
    assert left == []


def first(place: str) -> CatalogueRecording:
    return Catalogue(place).recordings(Selection(arm="excite"))[0]


@pytest.mark.slow
def test_data_that_is_gone_is_named_and_added_again(place: str) -> None:
    add(place, PATHS[:3])
    one = first(place)
    (Path(place) / "ticks" / one.batch).unlink()
    with pytest.raises(RecordingError, match=r"ticks.*is missing") as caught:
        one.load()
    assert "catalogue add" in caught.value.next_step
    assert add(place, PATHS[2:3]).added == (NAMES[2],)
    assert_equal(first(place).load(), RecordingFolder.open(PATHS[2]).load())
    left = {one.name: one for one in Catalogue(place).recordings()}
    assert sorted(left) == sorted(NAMES[:3])
    assert left[NAMES[1]].run().condition == "background", "rows of the old batch keep their text"
    assert add(place, PATHS[:3]).known == 1
    assert len(Catalogue(place).recordings()) == 3
    assert_equal(
        next(one for one in Catalogue(place).recordings() if one.name == NAMES[0]).load(),
        RecordingFolder.open(PATHS[0]).load(),
    )


def test_a_flipped_bit_is_noticed(place: str) -> None:
    add(place, PATHS[2:3])
    one = first(place)
    file = Path(place) / "ticks" / one.batch
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)
    with pytest.raises(RecordingError, match="damaged"):
        one.load()


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"{}", "is damaged"), (b"torn", "is damaged"), (b'{"version": 9}', "of version 9")],
)
def test_another_catalogue_is_refused(content: bytes, says: str, place: str) -> None:
    add(place, PATHS[:1])
    (Path(place) / "catalogue.json").write_bytes(content)
    for act in (lambda: Catalogue(place), lambda: add(place)):
        with pytest.raises(CatalogueError, match=says):
            act()


def test_storage_that_refuses_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a-file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        add(f"file://{tmp_path}/a-file/catalogue")
    with pytest.raises(StorageError, match="s3x"):
        find_recordings(["s3x://bucket/catalogue"])
    assert main(["fit", "memory://nothing/here", "--out", str(tmp_path / "twins")]) == 2
    assert "is no catalogue" in capsys.readouterr().err
    assert main(["catalogue", "show", str(tmp_path / "missing")]) == 2
    assert "is no catalogue" in capsys.readouterr().err


@pytest.mark.slow
def test_the_summary_counts_what_is_there(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    add(place)
    assert main(["catalogue", "show", place, "--recorded-arm", "excite", "--json"]) == 0
    (kind,) = json.loads(capsys.readouterr().out)
    assert (kind["node"], kind["recordings"], kind["first_day"]) == ("edge-7", 1, f"{DAY}")
    assert kind["stored_bytes"] == pytest.approx(200_000, rel=0.5)
    assert main(["catalogue", "show", place]) == 0
    assert "groonga-mix" in capsys.readouterr().out


def test_a_choice_is_even_over_arms_and_time() -> None:
    every = [
        RecordingFolder(
            path=Path(f"{k}"), scenario="s", condition="together",
            arm="rare" if k in {7, 150} else f"arm{k % 2}", node="", oom_kills=0,
        )
        for k in range(200)
    ]  # fmt: skip
    chosen = spread(every, 32)
    assert len(chosen) == 32
    assert sum(one.arm == "rare" for one in chosen) == 2
    assert sum(one.arm == "arm0" for one in chosen) == 15
    numbers = [int(one.name) for one in chosen]
    assert numbers == sorted(numbers)
    assert numbers[0] < 20
    assert numbers[-1] > 180
    assert spread(every, 200) == every
