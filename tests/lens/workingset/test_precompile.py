"""Every kernel of the lens is compiled ahead."""

from __future__ import annotations

import sys

import pytest

from stallward.lens import precompile


@pytest.mark.slow
def test_precompiling_compiles_every_kernel_of_the_lens() -> None:
    precompile.precompile()
    modules = [
        module for name, module in sys.modules.items() if name.startswith("stallward.lens.")
    ]
    kernels = [
        value
        for module in modules
        for value in vars(module).values()
        if getattr(value, "__module__", "") == module.__name__ and hasattr(value, "signatures")
    ]
    assert len(kernels) >= 5
    assert [kernel.__name__ for kernel in kernels if not kernel.signatures] == []
