"""The internals of numba that this package uses, and llvmlite, in one place.

The numbers of eight nodes as one vector need types of our own, whose code is written in LLVM's
language. Compiled code must be cached until any of many source files changes. Numba has no public
interface for either, and its internals change between minor versions. So no other file imports
``numba.core`` or ``llvmlite`` (``pyproject.toml`` has the rules), and a version of numba that has
not been tried is refused with one clear message.

Before a new version is allowed, run ``test_simd.py``, ``test_numba_internals.py`` and
``test_twin_golden.py`` of ``tests/env/twin`` with it; then raise ``NEXT_VERSION`` in
:mod:`stallward.env.twin.simd.numba_version` and the range in ``pyproject.toml``.
"""

from __future__ import annotations

import numba

from stallward.env.twin.simd.numba_version import check_numba_version, unknown_version

try:
    import llvmlite
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.core.caching import CompileResultCacheImpl, FunctionCache
    from numba.core.caching import _CacheLocator as CacheLocator
    from numba.core.typeconv import Conversion
    from numba.core.typing.templates import AttributeTemplate
except ImportError as error:
    raise unknown_version(numba.__version__) from error

check_numba_version(numba.__version__)

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
