"""Finds shipped policies, fitted twins and thresholds of rules, by name or path.

The policy ``NAME`` is the file ``policies/NAME.onnx`` with the card ``policies/NAME.md``, the
fitted twin is ``twins/NAME.json``, and the thresholds are ``rules/NAME.toml``. Any other name is
taken as a path.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stallward.agent.controllers.onnx import OnnxController
from stallward.models.errors import RegistryError

_HERE: Final = Path(__file__).parent
POLICIES_DIR: Final = _HERE / "policies"
TWINS_DIR: Final = _HERE / "twins"
RULES_DIR: Final = _HERE / "rules"
DEFAULT_POLICY: Final = "default"


def policy_names() -> tuple[str, ...]:
    """The names of the shipped policies."""
    return tuple(sorted(path.stem for path in POLICIES_DIR.glob("*.onnx")))


def twin_names() -> tuple[str, ...]:
    """The names of the shipped fitted twins."""
    return tuple(sorted(path.stem for path in TWINS_DIR.glob("*.json")))


def rule_names() -> tuple[str, ...]:
    """The names of the rules with shipped thresholds."""
    return tuple(sorted(path.stem for path in RULES_DIR.glob("*.toml")))


def find_policy(name_or_path: str | Path = DEFAULT_POLICY) -> Path:
    """The file of a policy.

    Raises:
        RegistryError: If it is neither a shipped policy nor a file.
    """
    return _find(name_or_path, POLICIES_DIR, ".onnx", "policy", policy_names())


def find_twin(name_or_path: str | Path) -> Path:
    """The file of a fitted twin.

    Raises:
        RegistryError: If it is neither a shipped twin nor a file.
    """
    return _find(name_or_path, TWINS_DIR, ".json", "fitted twin", twin_names())


def find_thresholds(name_or_path: str | Path) -> Path:
    """The file of a rule's thresholds.

    Raises:
        RegistryError: If they are neither shipped nor a file.
    """
    return _find(name_or_path, RULES_DIR, ".toml", "file of thresholds", rule_names())


def load_policy(name_or_path: str | Path = DEFAULT_POLICY) -> OnnxController:
    """Check a policy and make the controller that runs it.

    Raises:
        RegistryError: If it is neither a shipped policy nor a file.
        PolicyError: If it cannot be run safely.
    """
    return OnnxController(find_policy(name_or_path))


def _find(
    name_or_path: str | Path, folder: Path, suffix: str, kind: str, known: tuple[str, ...]
) -> Path:
    name = str(name_or_path)
    if name in known:
        return folder / f"{name}{suffix}"
    path = Path(name_or_path)
    if path.is_file():
        return path
    shipped = ", ".join(known) or "none"
    raise RegistryError(
        f"There is no {kind} {name!r}.",
        next_step=f"Give the path of a {suffix} file or the name of a shipped one: {shipped}.",
    )
