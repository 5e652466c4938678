"""Follows a search: keeps its trials on disk, reports its progress, and ends it in time.

Ray Tune pickles callbacks and stoppers, and takes those of the first command again when a search
goes on. So they hold nothing, and find the listener of this command here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ray.tune import Callback
from ray.tune.stopper import Stopper

from stallward.training.progress import Report
from stallward.training.recipe_search.table import write_table
from stallward.training.recipe_search.trial import JUDGEMENTS, WORTH
from stallward.training.recipe_search.trials import State, Trial, TrialLog, number_of, save_log

_OVER: Final = ("finished", "stopped early", "out of time", "failed")
_LISTENER: ContextVar[Listener] = ContextVar("listener")


class Listener:
    """What is known of the trials of a search, from Ray Tune's calls.

    Args:
        log: What earlier commands found.
        folder: Where the log is written.
        trials: How many trials there will be.
        limit_s: The most time of all commands together.
        report: Called with the progress.
        store: Called after a trial is over.
        interrupt: Called often. What it raises ends the search: a signal that came meanwhile, or
            a cluster that was lost.
    """

    def __init__(
        self,
        log: TrialLog,
        folder: Path,
        *,
        trials: int,
        limit_s: float,
        report: Report,
        store: Callable[[], None],
        interrupt: Callable[[], None],
    ) -> None:
        self.log = log
        self._folder, self._trials, self._limit_s = folder, trials, limit_s
        self._report, self._store, self.interrupt = report, store, interrupt
        self._before_s, self._began_s = log.spent_s, time.monotonic()
        self._running_since: dict[int, float] = {}
        self._over_before = log.over()

    def out_of_time(self) -> bool:
        """Whether the time of the search has run out."""
        return self._spent_s() >= self._limit_s

    def stopped_early(self, number: int) -> None:
        """Note that the scheduler stops a trial."""
        self._note(number, state="stopped early")

    def started(self, trial: Any) -> None:
        """Note that a trial runs, from its beginning."""
        number = number_of(trial.trial_id)
        self._running_since[number] = time.monotonic()
        self._note(
            number,
            settings=dict(trial.config),
            state="running",
            judgements=(),
            worth=None,
        )

    def judged(self, number: int, result: dict[str, Any]) -> None:
        """Note what a trial reported."""
        judgements = tuple(result.get(JUDGEMENTS, ()))
        self._note(number, judgements=judgements, worth=result.get(WORTH))
        trial = self.log.trial(number)
        if trial is not None and judgements:
            self._tell(f"trial {number}: {trial.decisions:,}, merit {judgements[-1].merit:.3f}")

    def completed(self, number: int) -> None:
        """Note that a trial is over."""
        trial = self.log.trial(number)
        state: State = "out of time"
        if trial is not None and trial.worth is not None:
            state = "finished"
        elif trial is not None and trial.state == "stopped early":
            state = "stopped early"
        self._note(number, state=state)
        self._tell(f"trial {number}: {state}")
        self._store()

    def failed(self, number: int, error: str, *, again: bool) -> None:
        """Note that a trial failed.

        Args:
            number: Its number.
            error: Why.
            again: Whether it is tried again.
        """
        trial = self.log.trial(number)
        failures = 1 + (trial.failures if trial else 0)
        state: State = "waiting" if again else "failed"
        self._note(number, state=state, failures=failures, error=error)
        self._tell(f"trial {number}: {'it is tried again' if again else 'failed'}")
        if not again:
            self._store()

    def _note(self, number: int, **changed: Any) -> None:
        if number in self._over_before:
            return
        known = self.log.trial(number) or Trial(number=number, settings={})
        since = self._running_since.get(number)
        if since is not None:
            changed["seconds"] = round(time.monotonic() - since, 1)
        log = self.log.with_trial(replace(known, **changed))
        self.log = replace(log, spent_s=round(self._spent_s(), 1))
        save_log(self._folder, self.log)
        write_table(self._folder, self.log)

    def _spent_s(self) -> float:
        return self._before_s + time.monotonic() - self._began_s

    def _tell(self, message: str) -> None:
        over = sum(trial.state in _OVER for trial in self.log.trials)
        self._report(message, over / max(self._trials, 1))


@contextmanager
def listening(to: Listener) -> Iterator[None]:
    """Let the callbacks of Ray Tune find a listener for the time of a ``with``."""
    token = _LISTENER.set(to)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def listener() -> Listener:
    """The listener of this command."""
    return _LISTENER.get()


class Listening(Callback):  # type: ignore[misc]
    """Passes on what Ray Tune tells."""

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Let end what has to."""
        listener().interrupt()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Note it."""
        listener().started(trial)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Note it."""
        listener().judged(number_of(trial.trial_id), result)

    def on_trial_complete(
        self, iteration: int, trials: list[Any], trial: Any, **info: Any
    ) -> None:
        """Note it."""
        listener().completed(number_of(trial.trial_id))

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Note it."""
        listener().failed(number_of(trial.trial_id), _why(trial), again=True)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Note it."""
        listener().failed(number_of(trial.trial_id), _why(trial), again=False)


class OutOfTime(Stopper):  # type: ignore[misc]
    """Stops all trials when the time of the search has run out."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Stop no trial by itself."""
        return False

    def stop_all(self) -> bool:
        """Whether all trials are stopped."""
        return listener().out_of_time()


def _why(trial: Any) -> str:
    """Why a trial failed, in one line."""
    error = trial.get_error()
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:500] if lines else type(error).__name__
