"""Registers the environments with Gymnasium, without importing it.

Programs of a scenario import ``stallward.env`` inside the memory-limited sandbox, where the 30 MB
of Gymnasium would count. So the ids are registered at once if Gymnasium is imported already, and
otherwise as soon as it is.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

IDS: Final = {
    "stallward/Twin-v0": "stallward.env.gym.twin_env:TwinEnv",
    "stallward/Node-v0": "stallward.env.gym.node_env:NodeEnv",
    "stallward/Replay-v0": "stallward.training.off_policy.replay_env:ReplayEnv",
}

_VECTORS: Final = {"stallward/Twin-v0": "stallward.env.gym.vector_env:TwinVectorEnv"}
"""The environments that exist for many nodes at once, for ``gymnasium.make_vec``."""
_LIVE: Final = "stallward/Node"


def register() -> None:
    """Register the environments now, or when Gymnasium is imported."""
    if "gymnasium" in sys.modules:
        _register(sys.modules["gymnasium"])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _register(gymnasium: Any) -> None:
    if not hasattr(gymnasium, "register"):  # its import is still under way elsewhere
        return
    for name, entry_point in IDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(
                id=name,
                entry_point=entry_point,
                vector_entry_point=_VECTORS.get(name),
                nondeterministic=name.startswith(_LIVE),
            )


class _Finder(MetaPathFinder):
    """Finds Gymnasium as imports do, and registers the environments once it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    def __init__(self, real: Loader) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._real
        self._real.exec_module(module)
        _register(module)
