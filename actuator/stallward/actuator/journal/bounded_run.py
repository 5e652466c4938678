"""Running a sequence of actions, any of which may block in the kernel for ever."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

PATIENCE_S: Final = 0.1
"""How long one action may take before the next starts beside it."""
GIVE_UP_S: Final = 2.0
"""How long a run waits for all actions together; one that blocks goes on by itself."""

Action = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An action that failed, or that the kernel still blocks."""

    number: int
    """The place of the action among those of the run."""
    why: str
    error: Exception | None = None
    """What it raised; ``None`` if it has not ended yet."""


class _Run:
    """The actions of one call, which several threads work on."""

    def __init__(self, actions: Sequence[Action]) -> None:
        self.changed = threading.Condition()
        self.waiting = deque(enumerate(actions))
        self.begun: dict[int, Action] = {}
        """The actions under way, by their number."""
        self.errors: dict[int, Exception] = {}
        self.taken = 0

    def work(self) -> None:
        """Run waiting actions until there are none left."""
        while True:
            with self.changed:
                if not self.waiting:
                    return
                number, action = self.waiting.popleft()
                self.begun[number] = action
                self.taken += 1
            failed: Exception | None = None
            try:
                action()
            except Exception as error:  # whatever it is, the other actions must be run
                failed = error
            with self.changed:
                del self.begun[number]
                if failed is not None:
                    self.errors[number] = failed
                self.changed.notify_all()


def run_bounded(
    actions: Sequence[Action],
    *,
    patience_s: float = PATIENCE_S,
    give_up_s: float = GIVE_UP_S,
) -> tuple[Failure, ...]:
    """Run ``actions`` in order; one that blocks does not hold up the others.

    Where the system has no room for another thread, the caller's thread runs them, however long
    that takes: then one that blocks does hold up the others, but none is left out.

    Args:
        actions: The actions to run.
        patience_s: How long one may take before the next starts beside it.
        give_up_s: How long this call waits in all.

    Returns:
        The actions that failed or still block, in order.
    """
    if not actions:
        return ()
    run = _Run(actions)
    deadline_s = time.monotonic() + give_up_s
    with run.changed:
        while run.waiting or run.begun:
            taken = run.taken
            if run.waiting and not _start(run.work):
                run.changed.release()
                try:
                    run.work()
                finally:
                    run.changed.acquire()
            patient_s = time.monotonic() + patience_s
            while run.waiting or run.begun:
                left_s = min(patient_s, deadline_s) - time.monotonic()
                if left_s <= 0.0:
                    break
                run.changed.wait(left_s)
                if run.taken != taken:
                    taken, patient_s = run.taken, time.monotonic() + patience_s
            if time.monotonic() >= deadline_s:
                break
        stuck = [
            Failure(
                number=number,
                why=f"{_described(action)} is not done after {give_up_s:g} s, and goes on.",
            )
            for number, action in (*run.begun.items(), *run.waiting)
        ]
        failed = [
            Failure(number=number, why=str(error) or type(error).__name__, error=error)
            for number, error in run.errors.items()
        ]
        return tuple(sorted((*stuck, *failed), key=lambda failure: failure.number))


def _start(work: Callable[[], None]) -> bool:
    """Start a thread; false if there is no room for one."""
    try:
        threading.Thread(target=work, name="restore", daemon=True).start()
    except RuntimeError:  # EAGAIN: the limit of a group, a user or the node is reached
        return False
    return True


def _described(action: Action) -> str:
    """Describe an action; for a partial call, by its arguments."""
    arguments = action.args if isinstance(action, partial) else (action,)
    return " ".join(str(argument) for argument in arguments if isinstance(argument, str | Path))
