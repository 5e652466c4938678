"""The internals of numba that the vector compiler relies on are still there, and unchanged."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest
from numba import njit

from stallward.env.twin.simd import cache_folder, jit, kernel_cache, numba_internals
from stallward.env.twin.simd.backend import FIRST_VERSION, is_tried

ROOT = Path(__file__).parents[4]
INTERNALS = Path(numba_internals.__file__)


def changed(what: str) -> str:
    """Return the message for a change in numba."""
    return (
        f"numba {numba.__version__} {what}. Adapt {INTERNALS.parent} to it, or leave this version "
        f"out of backend.py."
    )


@pytest.mark.parametrize("version", ["0.65.0", "0.66.0rc1", "0.68.1", "0.68.0dev0+12.gabc"])
def test_versions_that_were_tried_have_vectors(version: str) -> None:
    assert is_tried(version)


@pytest.mark.parametrize("version", ["0.64.9", "0.69.0", "0.69.0rc1", "1.0.0", "1", "unknown"])
def test_any_other_version_has_none(version: str) -> None:
    assert not is_tried(version)


def test_the_oldest_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = ".".join(str(part) for part in FIRST_VERSION)
    assert f"numba>={oldest},<1" in project["optional-dependencies"]["train"]


@pytest.mark.slow
def test_a_numba_without_these_internals_is_said_to_lack_them() -> None:
    code = (
        "import numba.core.caching\n"
        "del numba.core.caching.FunctionCache\n"
        "from stallward.env.twin.simd import backend, jit\n"
        "print(backend.VECTORS, backend.WIDTH)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False 1\n"
    assert done.stderr.count("\n") == 1
    assert "lacks what vectors need" in done.stderr
    assert "FunctionCache" in done.stderr


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (numba_internals.FunctionCache, ["_impl_class", "load_overload", "save_overload"]),
        (numba_internals.CompileResultCacheImpl, ["_locator_classes"]),
        (numba_internals.AttributeTemplate, ["generic_resolve", "resolve"]),
        (numba_internals.Conversion, ["safe"]),
        (numba_internals.cgutils, ["alloca_once", "get_or_insert_function"]),
        (numba_internals.types.Type, ["unify", "can_convert_from"]),
        (njit(lambda: 0), ["_cache"]),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_classes_have_the_members_that_are_used(owner: Any, names: list[str]) -> None:
    missing = [name for name in names if not hasattr(owner, name)]
    assert not missing, changed(f"has no {', '.join(missing)} in {owner!r}")


def test_our_cache_locator_has_all_methods_that_numba_calls() -> None:
    locator = numba_internals.CacheLocator
    asked = {
        name
        for name, member in vars(locator).items()
        if getattr(member, "__isabstractmethod__", False)
    }
    answered = {"get_cache_path", "get_source_stamp", "get_disambiguator", "from_function"}
    assert asked <= answered, changed(f"asks a cache locator for {sorted(asked - answered)}")
    parameters = list(inspect.signature(locator.from_function).parameters)
    assert len(parameters) == 2, changed(f"calls from_function with {parameters}")


def keep_in(folder: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (jit, kernel_cache):
        monkeypatch.setattr(module, "cache_folder", lambda: folder)


def _three_times(x: float) -> float:
    return 3.0 * x


def _compiled_anew(kernel: Callable[[float], float]) -> bool:
    """Call a kernel for the first time; return whether that compiled it, or read it from disk."""
    assert kernel(2.0) == 6.0
    stats: Any = kernel.stats  # type: ignore[attr-defined]
    hits, misses = sum(stats.cache_hits.values()), sum(stats.cache_misses.values())
    assert hits + misses == 1, changed("does not ask our cache for compiled code")
    return bool(misses)


def test_a_cache_that_cannot_be_written_any_more_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_in(Path("/proc/none"), monkeypatch)
    for _ in range(2):
        assert _compiled_anew(jit.kernel(_three_times)), "it is compiled each time"
    keep_in(tmp_path, monkeypatch)
    assert _compiled_anew(jit.kernel(_three_times))
    for name in ("*.nbc", "*.nbi"):  # a disk that was full leaves empty files
        for file in tmp_path.glob(name):
            file.write_bytes(b"")
        assert _compiled_anew(jit.kernel(_three_times))


def test_a_kernel_without_any_place_for_a_cache_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep_in(None, monkeypatch)
    assert jit.kernel(_three_times)(2.0) == 6.0


def test_a_user_without_a_home_has_no_cache_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_folder.user_folder() is None


def test_compiled_code_is_used_again_until_any_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_in(tmp_path, monkeypatch)
    assert _compiled_anew(jit.kernel(_three_times))
    assert not _compiled_anew(jit.kernel(_three_times))
    monkeypatch.setattr(kernel_cache, "sources_hash", lambda *_: "other sources")
    assert _compiled_anew(jit.kernel(_three_times))
    assert not _compiled_anew(jit.kernel(_three_times))


@pytest.mark.slow
def test_processes_do_not_compile_the_same_kernel_at_once(tmp_path: Path) -> None:
    """The second one waits for the first, and reads what that has compiled."""
    code = (
        "import sys, time\n"
        "from stallward.env.twin.physics import randomness\n"
        "kernel = randomness._fill_keys\n"
        "compile = kernel._compiler.compile\n"
        "def slowly(*args):\n"
        "    print('compiles', flush=True)\n"
        "    time.sleep(1.0)\n"
        "    return compile(*args)\n"
        "kernel._compiler.compile = slowly\n"
        "randomness.keys_of(1, 3)\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(said) == ["", "compiles\n"]


def test_what_was_compiled_long_ago_is_removed_from_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_in(tmp_path, monkeypatch)
    monkeypatch.setattr(kernel_cache, "user_folder", lambda: tmp_path)
    old, data = tmp_path / "old.1.nbc", tmp_path / "trained.npz"
    for file in (old, data):
        file.touch()
        os.utime(file, (0.0, 0.0))
    assert _compiled_anew(jit.kernel(_three_times))
    assert not old.exists()
    assert data.exists()
    assert not _compiled_anew(jit.kernel(_three_times))
