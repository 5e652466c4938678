"""The internals of numba that vectors and the cache of their code use, and llvmlite, in one place.

The numbers of eight nodes as one vector need types of our own, whose code is written in LLVM's
language. Compiled code must be cached until any of many source files changes. Numba has no public
interface for either, and its internals change between minor versions. So no other file imports
``numba.core`` or ``llvmlite`` (``pyproject.toml`` has the rules), and where this file cannot be
imported, or numba has not been tried, there are no vectors (``backend``).

Before a new version has them, run the tests of ``tests/env/twin`` with it; then raise
``NEXT_VERSION`` in :mod:`stallward.env.twin.simd.backend`.
"""

from __future__ import annotations

import llvmlite
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.caching import _CacheLocator as CacheLocator
from numba.core.typeconv import Conversion
from numba.core.typing.templates import AttributeTemplate

__all__ = [
    "AttributeTemplate",
    "CacheLocator",
    "CompileResultCacheImpl",
    "Conversion",
    "FunctionCache",
    "cgutils",
    "ir",
    "llvmlite",
    "types",
]
