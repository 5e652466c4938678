"""A folder that several processes need is made by one of them, and is whole once it is there."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stallward.env.workloads.made_once import made_once


def test_all_who_need_it_at_once_get_the_folder_of_the_first(tmp_path: Path) -> None:
    made: list[int] = []

    def fill(part: Path) -> None:
        made.append(threading.get_ident())
        time.sleep(0.05)
        (part / "file").write_text("whole")

    with ThreadPoolExecutor(3) as pool:
        places = list(pool.map(lambda _: made_once(tmp_path / "cache" / "x", fill), range(3)))
    assert len(made) == 1
    assert {(place / "file").read_text() for place in places} == {"whole"}


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "x.part").mkdir()
    (tmp_path / "x.part" / "torn").touch()
    made_once(tmp_path / "x", lambda part: (part / "file").touch())
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["file"]


def test_a_folder_that_could_not_be_filled_is_not_there(tmp_path: Path) -> None:
    def fail(part: Path) -> None:
        (part / "torn").touch()
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        made_once(tmp_path / "x", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["x.lock"]
