"""The file by which a directory belongs to one plan, so that the same command resumes it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar

from stallward.evaluation.errors import PlanError, ResultError
from stallward.evaluation.results.serialise import holds_object, load, save

PLAN_FILE: Final = "plan.json"
RESUME_OR_RENAME: Final = "Repeat its settings to resume it, or name another directory with --out."

_P = TypeVar("_P")


def claim(root: Path, plan: _P, what: str) -> _P:
    """Make a directory belong to a plan, unless it belongs to one already.

    Args:
        root: The directory; it is made if it does not exist.
        plan: The plan.
        what: What is planned, such as ``comparison``.

    Returns:
        The plan that the directory belongs to now, which may be another one.

    Raises:
        PlanError: If it holds anything else.
    """
    if root.is_file():
        raise PlanError(f"{root} is a file.", next_step="Name a directory with --out.")
    if not holds_object(root / PLAN_FILE):
        if root.exists() and any(root.iterdir()):
            raise PlanError(
                f"{root} is not empty and holds no {what}.",
                next_step="Name an empty or a new directory with --out.",
            )
        root.mkdir(parents=True, exist_ok=True)
        save(root / PLAN_FILE, plan)
        return plan
    try:
        return load(type(plan), root / PLAN_FILE)
    except ResultError as error:
        raise PlanError(
            f"{root} holds another {what}: {error.cause}", next_step=RESUME_OR_RENAME
        ) from error
