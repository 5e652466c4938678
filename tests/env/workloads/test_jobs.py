"""The background programs of the held-out scenarios work in steps that they report."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stallward.env.workloads.jobs.circuit import circuit
from stallward.env.workloads.jobs.cpp_package import write_package
from stallward.env.workloads.jobs.forest_loop import Grower
from stallward.env.workloads.jobs.genome import write_genome
from stallward.env.workloads.jobs.index_build import BATCH_ROWS, Builder
from stallward.env.workloads.jobs.manuscript import manuscript
from stallward.env.workloads.jobs.torch_loop import Recommender


def test_a_package_comes_from_the_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_package(tmp_path / name, files=2, seed=seed)
    texts = [(tmp_path / name / "part1.cpp").read_bytes() for name in "abc"]
    assert texts[0] == texts[1] != texts[2]
    assert {path.name for path in (tmp_path / "a").iterdir()} == {
        "Makefile",
        "main.cpp",
        "part0.cpp",
        "part1.cpp",
    }


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_package_is_built_into_another_folder(tmp_path: Path) -> None:
    for program in ("make", "g++"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed; try `apt-get install make g++`")
    package, out = tmp_path / "package", tmp_path / "out"
    write_package(package, files=1, seed=1)
    out.mkdir()
    build = ["make", "-s", "-C", str(package), f"OUT={out}"]
    subprocess.run(build, check=True, timeout=120)
    subprocess.run([out / "program"], check=True)
    assert {path.suffix for path in package.iterdir()} == {"", ".cpp"}
    subprocess.run([*build, "clean"], check=True, timeout=20)
    assert list(out.iterdir()) == []


def test_trees_are_grown_and_a_new_model_begins() -> None:
    pytest.importorskip("lightgbm", reason="try `pip install lightgbm`")
    from stallward.env.workloads.jobs import lightgbm_loop  # noqa: PLC0415

    trainer = lightgbm_loop.Trainer(rows=2000, seed=1)
    grown = []
    for _ in range(lightgbm_loop.TREES_OF_A_MODEL + 2):
        trainer.step()
        grown.append(trainer.trees)
    assert grown == [*range(1, lightgbm_loop.TREES_OF_A_MODEL + 1), 1, 2]


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_jobs_of_spark_keep_some_tables(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="try `pip install pyspark`")
    if shutil.which("java") is None:
        pytest.skip("java is not installed; try `apt-get install default-jdk-headless`")
    # Its library leaves connections open, so it runs in a process of its own.
    jobs = """
import sys
from pathlib import Path
from stallward.env.workloads.jobs.spark_loop import CACHED_TABLES, Jobs, open_session
session = open_session(heap_mib=480, scratch=Path(sys.argv[1]))
jobs = Jobs(session, rows=5000, seed=1)
counts = [jobs.step() for _ in range(CACHED_TABLES + 1)]
print(*counts, len(jobs.tables) == CACHED_TABLES)
session.stop()
"""
    done = subprocess.run(
        [sys.executable, "-c", jobs, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    first, *others, kept = done.stdout.split()
    assert first == "5000", "it was joined with itself"
    assert len(others) == 4
    assert all(0 < int(count) <= 5000 for count in others)
    assert kept == "True"


def test_a_genome_has_its_bases_and_comes_from_the_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_genome(tmp_path / name, bases=1000, seed=seed)
    texts = [(tmp_path / name).read_text() for name in "abc"]
    assert texts[0] == texts[1] != texts[2]
    head, *lines = texts[0].splitlines()
    assert head.startswith(">")
    assert [len(line) for line in lines] == [100] * 10
    assert set("".join(lines)) == set("ACGT")


def test_a_forest_grows_and_a_new_one_begins() -> None:
    grower = Grower(rows=50, trees=3, seed=1)
    grown = []
    for _ in range(5):
        grower.step()
        grown.append(grower.trees)
    assert grown == [1, 2, 3, 1, 2]


def test_an_index_has_its_rows_and_a_new_one_begins(tmp_path: Path) -> None:
    builder = Builder(tmp_path, rows=2 * BATCH_ROWS, cache_mib=1, seed=1)
    for _ in range(2):
        builder.step()
    with sqlite3.connect(tmp_path / "build.sqlite") as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM lines")]
    connection.close()
    assert len(set(names)) == 2 * BATCH_ROWS
    assert names != sorted(names), "the index would be written from one end to the other"
    builder.step()
    assert builder.rows == BATCH_ROWS
    builder.close()


def test_a_recommender_learns_all_over_its_vectors() -> None:
    recommender = Recommender(mib=12, seed=1)
    before = [table.weight.detach().clone() for table in recommender.tables]
    losses = [recommender.step() for _ in range(12)]
    assert np.isfinite(losses).all()
    for table, old in zip(recommender.tables, before, strict=True):
        assert table.weight.numel() * 4 * 3 == 6 << 20, "with two moments, half of the memory"
        changed = (table.weight.detach() != old).any(dim=1)
        assert changed.float().mean() > 0.9
    again = Recommender(mib=12, seed=1)
    assert [again.step() for _ in range(12)] == losses


def test_a_circuit_uses_every_register_and_comes_from_the_seed() -> None:
    texts = ["".join(circuit(stages=3, seed=seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    for stage in range(4):
        for place in range(8):
            uses = texts[0].count(f"s{stage}_{place} ") + texts[0].count(f"s{stage}_{place};")
            assert uses > 1, f"register {place} of stage {stage} is set or read nowhere"


def test_gates_can_be_made_of_a_circuit(tmp_path: Path) -> None:
    if shutil.which("yosys") is None:
        pytest.skip("yosys is not installed; try `apt-get install yosys`")
    (tmp_path / "circuit.v").write_text("".join(circuit(stages=1, seed=1)))
    script = f"read_verilog {tmp_path}/circuit.v; proc; opt; check -assert; stat"
    done = subprocess.run(
        ["yosys", "-p", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert "$dff" in done.stdout


def test_a_manuscript_has_its_chapters_and_comes_from_the_seed() -> None:
    texts = ["".join(manuscript(count=2, seed=seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    lines = texts[0].splitlines()
    assert [line for line in lines if line.startswith("# ")] == ["# Chapter 0", "# Chapter 1"]
    assert texts[0].count("| --- | --- |") == 2
