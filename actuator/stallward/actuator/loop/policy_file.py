"""Finds, tries and loads the file of a policy."""

from __future__ import annotations

import contextlib
from functools import lru_cache
from pathlib import Path
from typing import Final

from stallward.actuator.config.tables import PolicyConfig
from stallward.actuator.errors import DaemonError, PolicyDiskError, PolicyStoreError
from stallward.actuator.loop.policy_loader import LoadResult, Trial
from stallward.actuator.policies.store import PolicyStore
from stallward.actuator.policies.trial import TrialOptions, try_policy
from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.errors import StallwardError
from stallward.models.registry import find_policy

_REMEMBERED: Final = 64
"""So many files that were tried are not tried again."""


def find_policy_file(name: str, places: PolicyConfig) -> Path | None:
    """Find a policy file.

    Args:
        name: Its path; or the name or the digest of a policy that was pushed; or a name in the
            policy folder, or of a shipped policy.
        places: Where policies are.

    Raises:
        PolicyStoreError: If several digests begin so.
    """
    path = Path(name)
    candidates = [path] if path.is_absolute() else []
    if places.store is not None and not path.is_absolute():
        store = PolicyStore(places.store)
        with contextlib.suppress(PolicyDiskError):  # the other places are as good
            pushed = store.find(name)
            candidates += [store.file(pushed)] if pushed else []
    if places.dir is not None and not path.is_absolute() and ".." not in path.parts:
        candidates += [places.dir / name, places.dir / f"{name}.onnx"]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    if "/" in name or not name:
        return None
    try:
        return Path(find_policy(name))
    except StallwardError:
        return None


def _with_older(error: StallwardError, name: str, places: PolicyConfig) -> StallwardError:
    """The error, with the older policy that is hidden by one of the same name, if there is one."""
    older = None
    if places.store is not None:
        with contextlib.suppress(PolicyStoreError):
            older = PolicyStore(places.store).named_before(name)
    if older is None:
        return error
    return DaemonError(
        str(error),
        next_step=f"The one that was pushed as {name} before it is {older.sha256[:12]}: load that, "
        f"or remove the newest: stallward ctl remove {name}.",
    )


def try_once(path: Path) -> None:
    """Try a policy in a process of its own, unless the same file has passed.

    Raises:
        StallwardError: If it must not be loaded here.
    """
    _tried(path, _identity(path))


@lru_cache(maxsize=_REMEMBERED)
def _tried(path: Path, _identity: tuple[int, ...]) -> None:
    try_policy(TrialOptions(path=path))


def _identity(path: Path) -> tuple[int, ...]:
    """What differs when a file is another one or was changed."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def load_file(
    name: str, places: PolicyConfig, ticket: int, trial: Trial | None = None
) -> LoadResult:
    """Find, try and load a file; errors are results.

    Args:
        name: What is to be loaded; see :func:`find_policy_file`.
        places: Where policies are.
        ticket: The ticket of the result.
        trial: Tries the file; by default in a process of its own.
    """
    try:
        path = find_policy_file(name, places)
        if path is None:
            where = f" (nor in {places.dir})" if places.dir else ""
            error = DaemonError(
                f"There is no policy file {name!r}{where}.",
                next_step="Give an absolute path on the node, or the name of a shipped policy.",
            )
            return LoadResult(ticket=ticket, error=error, missing=True)
        (trial or try_once)(path)
        return LoadResult(ticket=ticket, name=name, controller=OnnxController(path))
    except StallwardError as error:
        return LoadResult(ticket=ticket, error=_with_older(error, name, places))
