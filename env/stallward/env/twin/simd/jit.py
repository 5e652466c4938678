"""The decorators of compiled functions.

To compile the twin takes many seconds, so the result is kept on disk: in ``$NUMBA_CACHE_DIR`` if
that is set, else in the user's cache folder. If neither can be written, it is in a temporary
folder that is removed when this process ends. Where nothing can be written, or the disk is full,
the twin is compiled in each process and runs all the same. Processes that need the same kernel at
once wait for the first of them to compile it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numba
import numpy as np
from numba import config, njit
from numba.extending import register_jitable

from stallward.env.twin.simd.backend import VECTORS
from stallward.env.twin.simd.cache_folder import cache_folder
from stallward.env.twin.simd.sources import sources_hash

if VECTORS:
    from stallward.env.twin.simd.kernel_cache import KernelCache

Function = TypeVar("Function", bound=Callable[..., Any])

_FUSED: Final[dict[str, Any]] = {} if VECTORS else {"fastmath": {"contract"}}
"""Allows a product and a sum to be one instruction, as operations of vectors always do."""


INLINED: Final[dict[str, Any]] = {"forceinline": True, "error_model": "numpy", **_FUSED}
"""How functions of a model are compiled into kernels."""


def model(function: Function) -> Function:
    """Mark a function of a model: it stays plain Python, and is compiled into kernels."""
    inlined: Function = register_jitable(**INLINED)(function)
    return inlined


def operation(function: Function) -> Function:
    """Mark a basic operation: it is compiled as it is, unless there is one of vectors for it.

    Neither of these is fused with what the model does before or after it.
    """
    if VECTORS:
        return function
    options = {"forceinline": True, "error_model": "numpy", "fastmath": False}
    inlined: Function = register_jitable(**options)(function)
    return inlined


def kernel(function: Function) -> Function:
    """Mark a function that Python calls: it is compiled at its first call, and kept on disk."""
    typed: Function = _with_cache(function) if VECTORS else _in_own_folder(function)
    return typed


def _with_cache(function: Callable[..., Any]) -> Any:
    dispatcher: Any = njit(error_model="numpy", nogil=True)(function)
    if cache_folder() is not None:
        dispatcher._cache = KernelCache(function)
    return dispatcher


def _in_own_folder(function: Callable[..., Any]) -> Any:
    """Use the cache of numba, which checks one file only, in a folder for this state of all."""
    folder = cache_folder()
    if folder is None:
        return njit(error_model="numpy", nogil=True, **_FUSED)(function)
    before = config.CACHE_DIR
    state = sources_hash(function.__code__.co_filename, numba.__version__, np.__version__)
    config.CACHE_DIR = str(folder / f"plain-{state[:16]}")
    try:
        return njit(error_model="numpy", nogil=True, cache=True, **_FUSED)(function)
    finally:
        config.CACHE_DIR = before
