"""Running actions one after another of which any may block in the kernel for ever."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from stallward.actuator.kernel.paths import Paths

PATIENCE_S: Final = 0.1
"""How long one action may take before the next is begun beside it."""
GIVE_UP_S: Final = 2.0
"""How long all together are waited for; what blocks goes on by itself."""

Action = Callable[[], object]


class _Run:
    """The actions of one call, and who works on them."""

    def __init__(self, actions: Sequence[Action]) -> None:
        self.changed = threading.Condition()
        self.waiting = deque(enumerate(actions))
        self.begun: dict[int, Action] = {}
        """What is being done."""
        self.problems: dict[int, str] = {}
        self.taken = 0

    def work(self) -> None:
        """Do what waits until nothing does."""
        while True:
            with self.changed:
                if not self.waiting:
                    return
                number, action = self.waiting.popleft()
                self.begun[number] = action
                self.taken += 1
            problem = ""
            try:
                action()
            except Exception as error:  # whatever it is, the others must be done
                problem = str(error) or type(error).__name__
            with self.changed:
                del self.begun[number]
                if problem:
                    self.problems[number] = problem
                self.changed.notify_all()


def run_bounded(
    actions: Sequence[Action],
    *,
    patience_s: float = PATIENCE_S,
    give_up_s: float = GIVE_UP_S,
) -> tuple[str, ...]:
    """Run ``actions`` in order; one that blocks does not keep the others from being done.

    Where the system has no room for another thread they are run in this one, however long that
    takes: then one that blocks does hold up the others, but none is left out.

    Args:
        actions: What to do.
        patience_s: How long one may take before the next is begun beside it.
        give_up_s: How long this call waits in all.

    Returns:
        What failed or still blocks, one sentence each, in order.
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
        stuck = {
            number: f"{_described(action)} is not done after {give_up_s:g} s, and goes on."
            for number, action in (*run.begun.items(), *run.waiting)
        }
        return tuple(text for _, text in sorted({**stuck, **run.problems}.items()))


def _start(work: Callable[[], None]) -> bool:
    """Start a thread; whether there is room for one."""
    try:
        threading.Thread(target=work, name="restore", daemon=True).start()
    except RuntimeError:  # EAGAIN: the limit of a group, a user or the node is reached
        return False
    return True


def _described(action: Action) -> str:
    """What an action that is a partial call is about."""
    arguments = action.args if isinstance(action, partial) else (action,)
    return " ".join(str(argument) for argument in arguments if not isinstance(argument, Paths))
