"""The versions that a result depends on, so that a cluster computes what one machine computes."""

from __future__ import annotations

import functools
import hashlib
import itertools
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import stallward

_PACKAGES: Final = ("numpy", "scipy", "numba", "torch", "stable-baselines3", "cmaes", "stallward")
_CODE: Final = "code of stallward"
CORE: Final = ("actuator", "agent", "env", "evaluation", "models", "proto", "training")
"""What computes. A machine may lack the packages beside it, and another one have them; of these
only the one counts whose work it is."""


def versions_here() -> dict[str, str]:
    """The versions of this process: Python, packages, and a digest of our code."""
    found = {"Python": platform.python_version(), "processor": platform.machine()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return {**found, _CODE: code_digest(CORE)[:12]}


def code_beside_the_core(work: Callable[..., object]) -> dict[str, str]:
    """A digest of the package beside the core that has ``work``; empty if none has it."""
    while isinstance(work, functools.partial):
        work = work.func
    namespace, _, rest = work.__module__.partition(".")
    package = rest.partition(".")[0]
    if namespace != stallward.__name__ or package in CORE:
        return {}
    return {f"{_CODE}.{package}": code_digest((package,))[:12]}


def difference(wanted: Mapping[str, str], found: Mapping[str, str]) -> str:
    """The first difference, e.g. ``numpy 2.4.0 and not 2.5.1``; empty if there is none."""
    for name, value in wanted.items():
        other = found.get(name, "missing")
        if other != value:
            return f"{name} {other} and not {value}"
    return ""


@functools.cache
def code_digest(packages: tuple[str, ...]) -> str:
    """A digest of packages; development versions have one number and different code."""
    digest = hashlib.sha256()
    places = itertools.product(packages, map(Path, stallward.__path__))
    for package, root in places:
        for file in sorted((root / package).rglob("*.py")):
            digest.update(f"{file.relative_to(root)}".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
