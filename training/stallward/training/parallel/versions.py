"""The versions that a result depends on, so that a cluster computes what one machine computes."""

from __future__ import annotations

import functools
import hashlib
import itertools
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import stallward

_PACKAGES: Final = ("numpy", "scipy", "numba", "torch", "stable-baselines3", "cmaes", "stallward")
_CODE: Final = "code of stallward"
CORE: Final = ("actuator", "agent", "env", "evaluation", "models", "proto", "training")
"""What computes. A machine may lack the packages beside it, and another one have them."""


def versions_here() -> dict[str, str]:
    """The versions of this process: Python, packages, and a digest of our code."""
    found = {"Python": platform.python_version(), "processor": platform.machine()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return {**found, _CODE: code_digest()[:12]}


def difference(wanted: Mapping[str, str], found: Mapping[str, str]) -> str:
    """The first difference, e.g. ``numpy 2.4.0 and not 2.5.1``; empty if there is none."""
    for name, value in wanted.items():
        other = found.get(name, "missing")
        if other != value:
            return f"{name} {other} and not {value}"
    return ""


@functools.cache
def code_digest() -> str:
    """A digest of the core's code; development versions have one number and different code."""
    digest = hashlib.sha256()
    places = itertools.product(CORE, map(Path, stallward.__path__))
    for package, root in places:
        for file in sorted((root / package).rglob("*.py")):
            digest.update(f"{file.relative_to(root)}".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
