"""Background programs that work in memory or on files do steps of equal size, from their seed."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from stallward.env.workloads.jobs.etl_loop import BATCH_LINES, Worker, lines_of, record_of
from stallward.env.workloads.jobs.git_repository import make_repository
from stallward.env.workloads.jobs.matrix_loop import Matrices
from stallward.env.workloads.jobs.small_files import RARE_WORD, write_tree
from stallward.env.workloads.text_file import write_text_file

MIB = 1024 * 1024


def last_units(report: Path) -> float:
    lines = report.read_text().splitlines() if report.exists() else []
    return float(lines[-1].split()[1]) if lines else 0.0


def test_matrices_have_their_size_and_stay_finite() -> None:
    matrices = Matrices(mib=16, seed=1)
    assert matrices.values.nbytes == 16 * MIB
    before = matrices.values.copy()
    for _ in range(60):
        matrices.step()
    assert np.isfinite(matrices.values).all()
    changed = (matrices.values != before).any(axis=2)
    assert changed.any(axis=1).all(), "a matrix was never written"
    again = Matrices(mib=16, seed=1)
    for _ in range(60):
        again.step()
    np.testing.assert_array_equal(again.values, matrices.values)


def test_the_parts_of_a_text_are_its_lines(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("".join(f"line {number:06d}\n" for number in range(1000)))
    parts = [list(itertools.islice(lines_of(text, part=n, parts=3), 300)) for n in range(3)]
    assert parts[0][0] == "line 000000\n"
    assert all(len(set(part)) == 300 for part in parts)
    assert not set(parts[0]) & set(parts[1])
    read = [itertools.islice(lines_of(text, part=n, parts=3), 340) for n in range(3)]
    assert len({line for part in read for line in part}) == 1000


def test_a_line_becomes_a_record() -> None:
    record = record_of("0123456789abcdef0\n")
    assert record == {"name": "0123456789ab", "rest": "cdef0", "length": 5, "digits": 1}


def test_a_worker_keeps_the_newest_records_and_writes_them(tmp_path: Path) -> None:
    text = tmp_path / "text"
    write_text_file(text, mib=1, seed=1)
    worker = Worker(text, part=0, parts=2, records=1500, scratch=tmp_path)
    for _ in range(100):
        worker.step()
    assert len(worker.kept) == 1500
    written = (tmp_path / "loaded-0.csv").read_text().splitlines()
    assert len(written) == 1500
    assert BATCH_LINES == 1000


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
@pytest.mark.parametrize(
    "words",
    [
        ("etl_loop", "{text}", "--records", "2000", "--scratch", "{here}"),
        ("matrix_loop", "--mib", "16"),
    ],
)
def test_they_report_their_work_until_killed(tmp_path: Path, words: tuple[str, ...]) -> None:
    text, report = tmp_path / "text", tmp_path / "report"
    write_text_file(text, mib=1, seed=1)
    module, *options = (word.format(text=text, here=tmp_path) for word in words)
    argv = [sys.executable, "-m", f"stallward.env.workloads.jobs.{module}", *options]
    with subprocess.Popen([*argv, "--report", str(report)]) as process:
        try:
            deadline_s = time.monotonic() + 30
            while last_units(report) < 10:
                assert process.poll() is None
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
            workers = psutil.Process(process.pid).children()
        finally:
            process.kill()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive, "workers outlived the program"


def test_a_tree_has_its_files_and_the_rare_word_once_in_each(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_tree(tmp_path / name, files=250, kib=4, seed=seed)
    trees = [
        {str(path.relative_to(tmp_path / name)): path.read_bytes() for path in files}
        for name in "abc"
        for files in [[path for path in (tmp_path / name).rglob("*") if path.is_file()]]
    ]
    assert trees[0] == trees[1] != trees[2]
    assert len(trees[0]) == 250
    assert len(list((tmp_path / "a").iterdir())) == 2
    sizes = [len(text) for text in trees[0].values()]
    assert 3 * 1024 < np.mean(sizes) < 5 * 1024
    assert {text.count(RARE_WORD.encode()) for text in trees[0].values()} == {1}


def test_a_repository_has_its_versions_and_comes_from_the_seed(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed; try `apt-get install git`")
    heads = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_repository(tmp_path / name, files=2, versions=3, kib=16, seed=seed)
        git = ["git", "-C", str(tmp_path / name)]
        log = subprocess.run(
            [*git, "log", "--format=%H", "main"], capture_output=True, text=True, check=True
        )
        heads.append(log.stdout.split())
    assert heads[0] == heads[1] != heads[2]
    assert len(heads[0]) == 3
    packed = subprocess.run(
        [*git, "pack-objects", "-q", "--all", "--stdout", "--no-reuse-delta"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert packed.stdout.startswith(b"PACK")
