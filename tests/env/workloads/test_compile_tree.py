"""The tree that the compile sweep compiles."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from stallward.env.errors import WorkloadError
from stallward.env.workloads.jobs.compile_tree import write_tree

needs_gcc = pytest.mark.skipif(
    not shutil.which("gcc") or not shutil.which("make"), reason="no gcc or make"
)


@needs_gcc
def test_make_compiles_it_with_the_copy_of_the_compiler(tmp_path: Path) -> None:
    tree, scratch = tmp_path / "tree", tmp_path / "scratch"
    scratch.mkdir()
    write_tree(tree, files=2, functions=2, seed=1)
    command = ["make", "-C", str(scratch), "-f", str(tree / "Makefile")]
    subprocess.run(command, check=True, capture_output=True)
    assert sorted(path.name for path in scratch.iterdir()) == ["source-000.o", "source-001.o"]
    (tree / "bin/cc1").unlink()
    (tree / "bin/cc1").write_text("#!/bin/sh\nexit 3\n")
    (tree / "bin/cc1").chmod(0o755)
    (scratch / "source-000.o").unlink()
    broken = subprocess.run(command, check=False, capture_output=True)
    assert broken.returncode != 0, "it took another compiler than the copy"


@needs_gcc
def test_the_seed_says_what_is_in_it(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_tree(tmp_path / name, files=1, functions=2, seed=seed)
    text = {name: (tmp_path / name / "source-000.c").read_text() for name in "abc"}
    assert text["a"] == text["b"] != text["c"]


def test_without_a_compiler_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkloadError, match="no program 'cc1'"):
        write_tree(tmp_path / "tree", files=1, functions=1, seed=1)
