"""Compiled code is made anew when anything that a kernel can read changes, and only then."""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stallward
from stallward.env import precompile
from stallward.env.simulation import step
from stallward.env.twin import batch
from stallward.env.twin.simd import sources

FOLDERS = [Path(folder) for folder in stallward.__path__]
STEP = step.__file__


def place(file: str) -> str:
    return file.rpartition("/stallward/")[2]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of what the step reaches in one folder, as in a wheel, which is read in its place."""
    copy = tmp_path / "stallward"
    for source in sources.reachable(STEP):
        (copy / place(source)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy / place(source))
    monkeypatch.setattr(stallward, "__path__", [str(copy)])
    forget()
    yield copy
    forget()


def forget() -> None:
    for function in (sources._read, sources._file_of, sources._folder, sources._names):
        function.cache_clear()


def test_a_hash_does_not_depend_on_where_the_package_is(copy: Path) -> None:
    there = sources.sources_hash(str(copy / place(STEP)))
    reached = {place(file) for file in sources.reachable(str(copy / place(STEP)))}
    forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stallward, "__path__", [str(folder) for folder in FOLDERS])
        assert sources.sources_hash(STEP) == there
        assert {place(file) for file in sources.reachable(STEP)} == reached
        forget()


@pytest.mark.slow
def test_a_change_of_any_module_that_a_kernel_can_read_changes_its_hash(copy: Path) -> None:
    kernels = str(copy / place(STEP))
    before = sources.sources_hash(kernels)
    for file in map(Path, sources.reachable(kernels)):
        text = file.read_bytes()
        file.write_bytes(text + b"X = 1\n")
        forget()
        assert sources.sources_hash(kernels) != before, file
        file.write_bytes(text)
    forget()
    assert sources.sources_hash(kernels) == before


def test_a_change_elsewhere_changes_nothing(copy: Path) -> None:
    kernels = str(copy / place(STEP))
    before = sources.sources_hash(kernels)
    for name in ("agent/controllers/latd.py", "env/gym/twin_env.py", "lens/workingset/pages.py"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("X = 1\n")
    forget()
    assert sources.sources_hash(kernels) == before


def test_the_physics_are_reached_from_the_kernels() -> None:
    reached = {place(file) for file in sources.reachable(STEP)}
    physics = Path(batch.__file__).parent / "physics"
    assert {place(str(file)) for file in physics.glob("[a-z]*.py")} <= reached
    assert {
        "agent/action_table.py",
        "agent/sharing/lending.py",
        "actuator/guard/budgets.py",
        "env/twin/simd/elementary.py",
        "env/twin/simd/vector_operations.py",
        "env/twin/simd/plain_records.py",
        "env/objective.py",
    } <= reached


def test_versions_count() -> None:
    assert sources.sources_hash(STEP, "0.68.1") != sources.sources_hash(STEP, "0.68.2")


def imported_by(file: Path) -> set[str]:
    """The files of the modules that a file imports, by its syntax tree."""
    files = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            files |= {sources._file_of(name.name) for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            parts = [sources._file_of(f"{node.module}.{name.name}") for name in node.names]
            files |= {*parts, sources._file_of(node.module)} if "" in parts else set(parts)
    return {file for file in files if "/stallward/" in file}


def test_imports_of_every_form_are_found(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(
        "from stallward.agent.desired import PROFILES\n"
        "from stallward.env.twin import batch, node  # two\n"
        "from stallward.env.twin.physics import (\n"
        "    pages,  # the (first)\n"
        "    stalls as stalling,\n"
        ")\n"
        "def later():\n"
        "    import stallward.env.objective\n"
    )
    assert {place(found) for found in sources._read(str(file))[1]} >= {
        "agent/desired.py",
        "env/objective.py",
        "env/twin/batch.py",
        "env/twin/node.py",
        "env/twin/physics/pages.py",
        "env/twin/physics/stalls.py",
    }


def test_every_import_is_found() -> None:
    for file in sources.reachable(STEP):
        missed = imported_by(Path(file)) - sources._read(file)[1]
        assert not missed, file


@pytest.mark.slow
def test_precompiling_compiles_every_kernel_of_the_environments() -> None:
    precompile.precompile()
    modules = [module for name, module in sys.modules.items() if name.startswith("stallward.env.")]
    kernels = [
        value
        for module in modules
        for value in vars(module).values()
        if getattr(value, "__module__", "") == module.__name__ and hasattr(value, "signatures")
    ]
    assert len(kernels) >= 5
    assert [kernel.__name__ for kernel in kernels if not kernel.signatures] == []
