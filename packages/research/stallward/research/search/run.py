"""Runs the trials of a search side by side, and stops those that Optuna gives up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from stallward.research.search.space import Space, recipe_of
from stallward.research.search.study import Study
from stallward.research.search.trials import Judgement, State, Worth
from stallward.training.parallel.executor import ATTEMPTS, Event, Executor, Job, Kind, Session
from stallward.training.ppo.args import Args
from stallward.training.ppo.callback import arm_of_policy
from stallward.training.ppo.preparation import Prepared
from stallward.training.ppo.recipe import recipe_values
from stallward.training.ppo.train import train_seed
from stallward.training.progress import Report, silent


class AfterDecisions:
    """Once after each of these numbers of decisions, so that trainings can be compared.

    Args:
        decisions: The numbers, rising.
    """

    def __init__(self, decisions: Sequence[int]) -> None:
        self._left = list(decisions)

    def due(self, decisions: int, done: float) -> bool:
        """See :class:`stallward.training.ppo.callback.Schedule`."""
        if not self._left or decisions < self._left[0]:
            return False
        del self._left[0]
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What all trials of a search have in common."""

    space: Space
    """The space."""
    args: Args
    """The settings of a training by the recipe that is searched around."""
    prepared: Prepared
    """The twins, and how policies are judged."""


Outcome = tuple[list[Judgement], Worth]
Work = Callable[[Mapping[str, float], Report], Outcome]
"""A trial with these settings. Its report's message has all judgements until then, as JSON."""


def run_trial(search: Search, chosen: Mapping[str, float], report: Report) -> Outcome:
    """Train by the recipe of a trial, and find what it is worth.

    All trials have the same seed, twins and nodes. On the way the best actor so far is judged as
    in any training. In the end the policy is judged as between seeds, and on fresh nodes.

    Args:
        search: What all trials have in common.
        chosen: The values of the settings that are searched.
        report: Called with the judgements.
    """
    args = replace(search.args, **recipe_values(recipe_of(search.space, chosen)))
    judgements: list[Judgement] = []

    def judged(decisions: int, score: float) -> None:
        judgements.append(Judgement(decisions=decisions, merit=float(score)))
        report(json.dumps([asdict(one) for one in judgements]), decisions / args.total_steps)

    policy = train_seed(
        search.prepared,
        args,
        args.seed,
        silent,
        schedule=AfterDecisions(search.space.judged_after[:-1]),
        judged=judged,
    )
    arm, selection = arm_of_policy(policy), search.prepared.selection
    merit, fresh = selection.merit(arm), selection.on_fresh_nodes().merit(arm)
    return judgements, Worth(
        merit=merit.value, low=merit.low, fresh_merit=fresh.value, fresh_low=fresh.low
    )


@dataclass(frozen=True, slots=True)
class _Running:
    """A trial that runs."""

    job: Job[Outcome]
    attempts: int = 1
    began_s: float = field(default_factory=time.monotonic)


class Runner:
    """Runs the trials that are left.

    Args:
        study: The state of the search.
        work: What a trial does.
        space: What is searched.
        report: Called with the progress.
        store: Called after a trial is over.
    """

    def __init__(
        self, study: Study, work: Work, space: Space, *, report: Report, store: Callable[[], None]
    ) -> None:
        self._study, self._work, self._budget = study, work, space.budget
        self._report, self._store = report, store
        self._before_s, self._began_s = study.log.spent_s, time.monotonic()
        self._running: dict[int, _Running] = {}

    def run(self, executor: Executor) -> None:
        """Run them until none or no time is left.

        Raises:
            ClusterError: If a cluster was lost.
        """
        at_once = executor.workers(self._budget.trials)
        with executor.open() as session:
            while not self._out_of_time():
                while len(self._running) < at_once and (trial := self._study.begin()) is not None:
                    job = Job(f"trial {trial.number}", partial(self._work, trial.settings))
                    self._running[trial.number] = _Running(job)
                    session.start(trial.number, job)
                if not self._running:
                    return
                for event in session.wait():
                    self._take(session, event)
            for number in list(self._running):
                session.end(number)
                self._over(number, "out of time")

    def _take(self, session: Session, event: Event) -> None:
        number, kind, value = event
        if kind is Kind.PROGRESS:
            judgements = [Judgement(**one) for one in json.loads(value[0])]
            self._note_time(number)
            ends_anyway = judgements[-1].decisions >= self._budget.decisions
            if self._study.judged(number, judgements) and not ends_anyway:
                session.end(number)
                self._over(number, "stopped early")
                return
            latest = judgements[-1]
            self._tell(f"trial {number}: {latest.decisions:,}, merit {latest.merit:.3f}")
        elif kind is Kind.DONE:
            judgements, worth = value
            self._study.judged(number, judgements)
            self._over(number, "finished", worth)
        else:
            self._failed(session, number, value)

    def _failed(self, session: Session, number: int, error: Exception) -> None:
        self._study.failed(number, error)
        running = self._running[number]
        if running.attempts >= ATTEMPTS:
            self._over(number, "failed")
            return
        self._tell(f"trial {number}: it is tried again")
        self._running[number] = _Running(running.job, running.attempts + 1)
        session.start(number, running.job)

    def _over(self, number: int, state: State, worth: Worth | None = None) -> None:
        self._note_time(number)
        del self._running[number]
        self._study.over(number, state, worth)
        self._tell(f"trial {number}: {state}")
        self._store()

    def _note_time(self, number: int) -> None:
        self._study.timed(
            number, time.monotonic() - self._running[number].began_s, self._spent_s()
        )

    def _spent_s(self) -> float:
        return self._before_s + time.monotonic() - self._began_s

    def _out_of_time(self) -> bool:
        minutes = self._budget.minutes
        return minutes is not None and self._spent_s() >= 60.0 * minutes

    def _tell(self, message: str) -> None:
        trials = self._study.log.trials
        over = sum(trial.state not in {"waiting", "running"} for trial in trials)
        self._report(message, over / self._budget.trials)
