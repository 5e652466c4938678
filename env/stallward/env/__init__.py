"""Recordings, scenarios and their sandbox, the twin, and the Gymnasium environments.

``gymnasium.make("stallward.env:stallward/Twin-v0")`` needs no other import, in whatever order this
package and Gymnasium are imported. Programs of a scenario import this package, too, inside the
memory-limited sandbox, where the 30 MB of Gymnasium would count. So it does not import Gymnasium;
:mod:`stallward.env.gym` does, and this package imports that as soon as Gymnasium is there.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _AfterGymnasium:
    """A finder of modules that registers the environments once Gymnasium has been imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the other finders find Gymnasium, and watch it being loaded."""
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                importlib.import_module("stallward.env.gym")

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    importlib.import_module("stallward.env.gym")
else:
    sys.meta_path.insert(0, _AfterGymnasium())
