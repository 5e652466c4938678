"""The cache of kernels with vectors; the versions of numba that have these have what it needs.

Compiled code is used again, from whichever folder the package is imported, unless a module that
the kernel's module imports, directly or not, has changed. Numba by itself checks only the
kernel's own file, but a kernel consists of model functions from many files.
"""

from __future__ import annotations

import contextlib
import fcntl
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numba
import numpy as np

from stallward.env.twin.simd.cache_folder import cache_folder, user_folder
from stallward.env.twin.simd.numba_internals import (
    CacheLocator,
    CompileResultCacheImpl,
    FunctionCache,
    llvmlite,
)
from stallward.env.twin.simd.sources import sources_hash

_CUT_SHORT: Final = (EOFError, pickle.UnpicklingError)
"""What reading compiled code raises if its file was cut short."""
_LONGEST_WAIT_S: Final = 300.0
"""How long another process may take to compile a kernel; one that was stopped stops no other."""
_KEPT_S: Final = 30 * 86400.0
"""How long compiled code is kept in the user's cache after it was compiled."""


class _Locator(CacheLocator):  # type: ignore[misc]
    """Tells numba where compiled code is kept, and whether it is still valid."""

    def __init__(self, function: Callable[..., Any]) -> None:
        code = function.__code__
        self._line = code.co_firstlineno
        versions = (numba.__version__, llvmlite.__version__, np.__version__)
        self._hash = sources_hash(code.co_filename, *versions)

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        return self._hash

    def get_disambiguator(self) -> str:
        return f"{self._line}-{self._hash[:16]}"

    @classmethod
    def from_function(cls, function: Callable[..., Any], _file: str) -> _Locator:
        return cls(function)


class _Results(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes: Final = [_Locator]


class KernelCache(FunctionCache):  # type: ignore[misc]
    """The cache of one kernel; what goes wrong with it costs time, and stops nothing."""

    _impl_class = _Results

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        module = function.__module__.rpartition(".")[2]
        self._turn = Path(self.cache_path, f"{module}.{function.__qualname__}.lock")
        self._compiling = contextlib.ExitStack()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Read what was compiled; if there is nothing, wait until it is this process's turn."""
        found = self._load(sig, target_context)
        if found is None:
            self._compiling.enter_context(_turn(self._turn))
            found = self._load(sig, target_context)  # another process may have compiled it
            if found is not None:
                self._compiling.close()
        return found

    def _load(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except (OSError, *_CUT_SHORT):
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, and let the next process have its turn."""
        try:
            try:
                super().save_overload(sig, data)
            except _CUT_SHORT:  # the index, by a disk that was full
                self.flush()
                super().save_overload(sig, data)
            _remove_old()
        except OSError:  # the disk is full, or was mounted read-only meanwhile
            self.disable()
        finally:
            self._compiling.close()


@contextlib.contextmanager
def _turn(file: Path) -> Iterator[None]:
    """Wait until no other process compiles the kernel, and make others wait."""
    try:
        stream = file.open("w")
    except OSError:
        yield
        return
    with stream:
        latest_s = time.monotonic() + _LONGEST_WAIT_S
        while time.monotonic() < latest_s:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.1)
                continue
            except OSError:  # a file system without locks
                pass
            break
        yield


def _remove_old() -> None:
    """Remove what was compiled long ago from the user's cache: each change leaves files there."""
    folder = user_folder()
    for file in folder.glob("*.nb[ci]") if folder is not None else ():
        with contextlib.suppress(FileNotFoundError):  # by another process
            if time.time() - file.stat().st_mtime > _KEPT_S:
                file.unlink()
