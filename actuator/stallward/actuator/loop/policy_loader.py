"""Loads a policy beside the ticks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from stallward.actuator.config.tables import PolicyConfig
from stallward.actuator.errors import DaemonError
from stallward.actuator.parts import Part, load_part
from stallward.actuator.policies.named_controller import specification_of
from stallward.actuator.runtime.process_setup import (
    raise_priority,
    release_code_pages,
    take_back_priority,
)
from stallward.agent.controller import Controller
from stallward.agent.errors import StallwardError
from stallward.agent.registry import make_controller

LIMIT_S: Final = 20.0
"""How long loading may take; the service waits a little longer for the answer. Trying the shipped
policy takes less than a second, and longer where the file must be read from a busy disk."""
Trial: TypeAlias = Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The result of loading one policy."""

    ticket: int
    """The ticket that was given to :meth:`PolicyLoader.start`."""
    name: str = ""
    """What was to be loaded."""
    controller: Controller | None = None
    """The policy, or another controller that was named; ``None`` after a failure."""
    error: StallwardError | None = None
    """Why it failed; ``None`` if it did not."""
    missing: bool = False
    """Whether it failed because there is no such file."""


@dataclass(slots=True, kw_only=True)
class _Job:
    """One load, which ends by itself or is given up."""

    name: str
    ticket: int
    started_s: float
    result: LoadResult | None = None
    thread: threading.Thread = field(init=False)


class PolicyLoader:
    """Loads one policy at a time on a thread, so that no tick waits for it.

    Args:
        places: Where policies are.
        trial: Tries a file before it is loaded in this process, and raises if it must not be; by
            default in a process of its own.
        limit_s: How long a load may take. A thread cannot be ended from outside, so one that takes
            longer is left to itself, and until it ends no other policy is loaded.
    """

    def __init__(
        self,
        places: PolicyConfig | None = None,
        *,
        trial: Trial | None = None,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._places = places or PolicyConfig()
        self._trial = trial
        self._limit_s = limit_s
        self._job: _Job | None = None
        self._given_up: _Job | None = None

    def start(self, name: str, ticket: int, now_s: float) -> None:
        """Start to load the policy ``name``.

        Raises:
            DaemonError: If the result of another load has not been collected yet, or a load that
                took too long has not ended yet.
        """
        if self._job is not None:
            raise DaemonError(
                "Another policy is being loaded.", next_step="Try again when that is done."
            )
        if self._given_up is not None and self._given_up.thread.is_alive():
            raise DaemonError(
                f"The policy {self._given_up.name!r} is still being loaded, for "
                f"{now_s - self._given_up.started_s:.0f} s now.",
                next_step="Restart the daemon, and do not load that file again.",
            )
        self._given_up = None
        job = self._job = _Job(name=name, ticket=ticket, started_s=now_s)
        job.thread = threading.Thread(target=self._work, args=(job,), name="policy", daemon=True)
        job.thread.start()

    def collect(self, now_s: float) -> LoadResult | None:
        """Return the result, once, as soon as there is one or the time for it is over."""
        job = self._job
        if job is None:
            return None
        if job.result is None and now_s - job.started_s < self._limit_s:
            return None
        self._job = None
        if job.result is not None:
            return job.result
        self._given_up = job
        take_back_priority(job.thread.native_id)
        error = DaemonError(
            f"The policy {job.name!r} could not be loaded within {self._limit_s:g} s.",
            next_step="Look at the file, and at the disk that it is on.",
        )
        return LoadResult(ticket=job.ticket, error=error)

    def _work(self, job: _Job) -> None:
        # A thread of ordinary priority may be preempted while it holds the interpreter's lock. The
        # tick then waits 5 to 40 ms for the program that has its CPU. Loading takes little time.
        raise_priority()
        loaded = load(job.name, self._places, job.ticket, trial=self._trial)
        release_code_pages()  # little of the code that loading needs runs again
        job.result = loaded


def load(
    name: str, places: PolicyConfig, ticket: int = 0, *, trial: Trial | None = None
) -> LoadResult:
    """Make the controller that is named, or load the file of a policy; errors are results."""
    try:
        specification = specification_of(name)
        if specification is None:
            loaded: LoadResult = load_part(Part.POLICY_FILE)(name, places, ticket, trial)
            return loaded
        made = make_controller(specification)
        return LoadResult(ticket=ticket, name=name, controller=made)
    except StallwardError as error:
        return LoadResult(ticket=ticket, error=error)
    except Exception as error:  # a thread that dies silently would leave the caller waiting
        return LoadResult(ticket=ticket, error=DaemonError(f"{name} cannot be loaded: {error!r}."))
