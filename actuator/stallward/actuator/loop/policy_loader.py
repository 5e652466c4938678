"""Loads a policy beside the ticks."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from stallward.actuator.errors import DaemonError
from stallward.actuator.runtime.process_setup import raise_priority, release_code_pages
from stallward.agent.controller import PolicyController
from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.errors import StallwardError


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The result of loading one policy."""

    ticket: int
    """The ticket that was given to :meth:`PolicyLoader.start`."""
    controller: PolicyController | None = None
    """The policy; ``None`` after a failure."""
    error: StallwardError | None = None
    """Why it failed; ``None`` if it did not."""
    missing: bool = False
    """Whether it failed because there is no such file."""


def find_policy_file(name: str, policy_dir: Path | None) -> Path | None:
    """Find a policy file by its path, or by a name in the policy folder or of a shipped policy."""
    path = Path(name)
    candidates = [path] if path.is_absolute() else []
    if policy_dir is not None and not path.is_absolute() and ".." not in path.parts:
        candidates += [policy_dir / name, policy_dir / f"{name}.onnx"]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    if "/" in name or not name:
        return None
    from stallward.models.registry import find_policy  # noqa: PLC0415 - only if it is needed

    try:
        return Path(find_policy(name))
    except StallwardError:
        return None


class PolicyLoader:
    """Loads one policy at a time on a thread, so that no tick waits for it.

    Args:
        policy_dir: The folder of policies that are given by name; ``None`` for none.
    """

    def __init__(self, policy_dir: Path | None) -> None:
        self._policy_dir = policy_dir
        self._thread: threading.Thread | None = None
        self._result: LoadResult | None = None

    def start(self, name: str, ticket: int) -> None:
        """Start to load the policy ``name``.

        Raises:
            DaemonError: If the result of another load has not been collected yet.
        """
        if self._thread is not None:
            raise DaemonError(
                "Another policy is being loaded.", next_step="Try again when that is done."
            )
        self._thread = threading.Thread(
            target=self._work, args=(name, ticket), name="policy", daemon=True
        )
        self._thread.start()

    def collect(self) -> LoadResult | None:
        """Return the result, once, as soon as there is one."""
        if self._thread is None or self._result is None:
            return None
        result, self._result, self._thread = self._result, None, None
        return result

    def _work(self, name: str, ticket: int) -> None:
        # A thread of ordinary priority may be preempted while it holds the interpreter's lock. The
        # tick then waits 5 to 40 ms for the program that has its CPU. Loading takes 3 ms only.
        raise_priority()
        loaded = load(name, self._policy_dir, ticket)
        release_code_pages()  # little of the code that loading needs runs again
        self._result = loaded


def load(name: str, policy_dir: Path | None, ticket: int = 0) -> LoadResult:
    """Find, check and try a policy; errors are part of the result."""
    try:
        path = find_policy_file(name, policy_dir)
        if path is None:
            where = f" (nor in {policy_dir})" if policy_dir else ""
            error = DaemonError(
                f"There is no policy file {name!r}{where}.",
                next_step="Give an absolute path on the node, or the name of a shipped policy.",
            )
            return LoadResult(ticket=ticket, error=error, missing=True)
        return LoadResult(ticket=ticket, controller=OnnxController(path))
    except StallwardError as error:
        return LoadResult(ticket=ticket, error=error)
    except Exception as error:  # a thread that dies silently would leave the caller waiting
        return LoadResult(ticket=ticket, error=DaemonError(f"{name} cannot be loaded: {error!r}."))
