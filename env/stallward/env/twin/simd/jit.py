"""The decorators of compiled functions, and the cache of compiled code.

To compile the twin takes many seconds, so the result is kept on disk: in ``$NUMBA_CACHE_DIR`` if
that is set, else in the user's cache folder. If neither can be written, it is in a temporary
folder that is removed when this process ends. Where nothing can be written, or the disk is full,
the twin is compiled in each process and runs all the same.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from numba import config, njit
from numba.extending import register_jitable

from stallward import agent
from stallward.actuator.guard import slot_tracker
from stallward.actuator.runtime.temporary_folders import make_temporary_folder
from stallward.env import twin
from stallward.env.twin.simd.numba_internals import (
    CacheLocator,
    CompileResultCacheImpl,
    FunctionCache,
)

Function = TypeVar("Function", bound=Callable[..., Any])

_SOURCES: Final = (
    Path(twin.__file__).parents[1],
    Path(agent.__file__).parent,
    Path(slot_tracker.__file__),
)
"""All sources of kernels. Constants of other packages are compiled in, too."""
_CUT_SHORT: Final = (EOFError, pickle.UnpicklingError)
"""What reading compiled code raises if its file was cut short."""


def model(function: Function) -> Function:
    """Mark a function of a model: it stays plain Python, and is compiled into kernels."""
    inlined: Function = register_jitable(forceinline=True, error_model="numpy")(function)
    return inlined


def kernel(function: Function) -> Function:
    """Mark a function that Python calls: it is compiled at its first call and then kept on disk.

    Compiled code is used again only if no source of the package has changed. Numba by itself
    checks only the kernel's own file, but a kernel consists of model functions from many files.
    """
    dispatcher: Any = njit(error_model="numpy", nogil=True)(function)
    if cache_folder() is not None:
        dispatcher._cache = _Cache(function)
    typed: Function = dispatcher
    return typed


@functools.cache
def _source_hash() -> str:
    """Return a hash of all sources of kernels."""
    digest = hashlib.sha256()
    for source in _SOURCES:
        for file in sorted(source.rglob("*.py")) if source.is_dir() else (source,):
            digest.update(file.name.encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


@functools.cache
def cache_folder() -> Path | None:
    """Return the folder in which compiled code is kept; ``None`` if nothing can be written."""
    given = Path(config.CACHE_DIR) if config.CACHE_DIR else None
    for folder in (given, _user_folder()):
        if folder is not None and _writable(folder):
            return folder
    try:
        temporary = make_temporary_folder("kernels")
    except OSError:
        return None
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return temporary


def _user_folder() -> Path | None:
    """The folder for compiled code in the user's cache; ``None`` for a user without a home."""
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(cache or Path.home() / ".cache") / "stallward"
    except RuntimeError:  # as in a container that runs as a number without a name
        return None


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


class _Locator(CacheLocator):  # type: ignore[misc]
    """Tells numba where compiled code is kept, and whether it is still valid."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        return _source_hash()

    def get_disambiguator(self) -> str:
        place = hashlib.sha256(__file__.encode()).hexdigest()[:16]
        return f"{self._line}-{place}"

    @classmethod
    def from_function(cls, function: Callable[..., Any], _file: str) -> _Locator:
        return cls(function)


class _Results(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes: Final = [_Locator]


class _Cache(FunctionCache):  # type: ignore[misc]
    """The cache of one kernel; what goes wrong with it costs time, and stops nothing."""

    _impl_class = _Results

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except (OSError, *_CUT_SHORT):
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            try:
                super().save_overload(sig, data)
            except _CUT_SHORT:  # the index, by a disk that was full
                self.flush()
                super().save_overload(sig, data)
        except OSError:  # the disk is full, or was mounted read-only meanwhile
            self.disable()
