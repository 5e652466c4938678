"""The state of a search: an Optuna study that is kept in a journal.

Optuna chooses what is tried and which trials are stopped early. What it cannot know of a trial of
ours stands in attributes of its trial. A trial that is tried again by another command is a new
trial of Optuna with the number of ours.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from stallward.agent.control_law.thresholds import spans
from stallward.research.errors import SearchError
from stallward.research.search.space import Space, Values, base_values
from stallward.research.search.trials import (
    JOURNAL_FILE,
    TRIALS_FILE,
    Judgement,
    State,
    Trial,
    TrialLog,
    Worth,
    write_log,
)
from stallward.training.ppo.recipe import Recipe

_ANOTHER: Final = "Name a new directory with --out, or take the same ones."
_LEAST_FINISHED: Final = 3
"""So many trials have to be finished before the median stops others."""


class Study:
    """The trials of a search, in its directory.

    Args:
        folder: The directory, which exists.
        space: What is searched.
        seed: What is tried follows from it.
        identity: A digest of what determines the trials.

    Raises:
        SearchError: If the directory has another search, or one that cannot be read.
    """

    def __init__(self, folder: Path, space: Space, *, seed: int, identity: str) -> None:
        self._folder, self._space, self._seed = folder, space, seed
        self._identity = identity
        self._distributions = {n: _distribution(n, v) for n, v in space.settings.items()}
        self._study = _open(folder / JOURNAL_FILE, _pruner(space))
        if self._study.user_attrs.get("identity", identity) != identity:
            raise SearchError(
                f"{folder / JOURNAL_FILE} is of a search of another space, or with other twins or "
                "another seed.",
                next_step=_ANOTHER,
            )
        self._study.set_user_attr("identity", identity)
        self._running: dict[int, optuna.Trial] = {}
        known = self.log.trials
        self._again = [trial for trial in known if not trial.is_over]
        self._new = iter(range(len(known), space.budget.trials))
        for left in self._study.get_trials(states=(TrialState.WAITING, TrialState.RUNNING)):
            asked = self._study.ask() if left.state is TrialState.WAITING else left.number
            self._study.tell(asked, state=TrialState.FAIL)  # its command was interrupted
        self._write()

    @property
    def log(self) -> TrialLog:
        """All that is known."""
        trials = {}
        for trial in self._study.get_trials(deepcopy=False):
            if "state" in trial.user_attrs:  # else it was asked for, and never began
                trials[trial.user_attrs["number"]] = _as_known(trial)
        return TrialLog(
            identity=self._identity,
            spent_s=self._study.user_attrs.get("spent_s", 0.0),
            trials=tuple(trials[number] for number in sorted(trials)),
        )

    def begin(self) -> Trial | None:
        """The next trial to run; ``None`` if there is none left."""
        if self._again:
            trial = self._again.pop(0)
        elif (number := next(self._new, None)) is not None:
            settings = base_values(self._space) if number == 0 else {}
            trial = Trial(number=number, settings=settings)
        else:
            return None
        self._study.sampler = _sampler(self._space, self._seed, trial.number)
        # The recipe that is searched around may lie outside the space, where Optuna has no trials.
        inside = trial.number > 0 or _contains(self._space, trial.settings)
        if trial.settings and inside:
            self._study.enqueue_trial(dict(trial.settings))
        asked = self._study.ask(self._distributions if inside else None)
        self._running[trial.number] = asked
        trial = replace(trial, settings=trial.settings or asked.params)
        self._note(
            trial.number,
            number=trial.number,
            settings=dict(trial.settings),
            failures=trial.failures,
            state="running",  # the last: with it the trial counts as begun
        )
        return trial

    def judged(self, number: int, judgements: Sequence[Judgement]) -> bool:
        """Take what a running trial was worth on the way.

        Args:
            number: The trial.
            judgements: All until now.

        Returns:
            Whether the trial is to be stopped. The first one never is: every other one can be
            compared with it after all decisions.
        """
        trial, stop = self._running[number], False
        known = self._study.get_trials(deepcopy=False)[trial.number].intermediate_values
        for one in judgements:
            if one.decisions not in known:  # else it is tried again
                trial.report(one.merit, one.decisions)
                stop |= trial.should_prune()
        return stop and number != 0

    def timed(self, number: int, seconds: float, spent_s: float) -> None:
        """Note how long a trial has run, and the search in all."""
        self._study.set_user_attr("spent_s", round(spent_s, 1))
        self._note(number, seconds=round(seconds, 1))

    def failed(self, number: int, error: Exception) -> None:
        """Note that a running trial failed."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        self._note(
            number,
            failures=self._running[number].user_attrs["failures"] + 1,
            error=lines[-1][:500] if lines else type(error).__name__,
        )

    def over(self, number: int, state: State, worth: Worth | None = None) -> None:
        """Note that a trial is over."""
        told = {"finished": TrialState.COMPLETE, "stopped early": TrialState.PRUNED}
        if worth is not None:
            self._running[number].set_user_attr("worth", asdict(worth))
        self._running[number].set_user_attr("state", state)
        self._study.tell(
            self._running.pop(number),
            None if worth is None else worth.merit,
            state=told.get(state, TrialState.FAIL),
        )
        self._write()

    def _note(self, running: int, **attributes: Any) -> None:
        for name, value in attributes.items():
            self._running[running].set_user_attr(name, value)
        self._write()

    def _write(self) -> None:
        write_log(self._folder, self.log)


class _NoLock(JournalFileOpenLock):
    """No lock, because one command at a time writes to a directory.

    Optuna's own locks outlive a command that is killed, and turn a Ctrl-C while one is released
    into an error about their file.
    """

    def acquire(self) -> bool:
        """Let the only writer write."""
        return True

    def release(self) -> None:
        """Do nothing."""


def _open(file: Path, pruner: BasePruner) -> optuna.Study:
    """The study in a file, or a new one.

    Raises:
        SearchError: If an older version began the search, or the file cannot be read.
    """
    if not file.exists() and file.with_name(TRIALS_FILE).exists():
        raise SearchError(
            f"The search in {file.parent} was begun by an older version, with Ray Tune, and cannot "
            "go on.",
            next_step="Name a new directory with --out.",
        )
    optuna.logging.set_verbosity(logging.ERROR)
    try:
        storage = JournalStorage(JournalFileBackend(str(file), _NoLock(str(file))))
        return optuna.create_study(
            study_name="recipes",
            storage=storage,
            direction="maximize",
            pruner=pruner,
            load_if_exists=True,
        )
    except Exception as error:  # Optuna reads it without a check
        raise SearchError(
            f"The trials in {file} cannot be read: {type(error).__name__}: {error}.",
            next_step="Name a new directory with --out.",
        ) from error


def _as_known(trial: FrozenTrial) -> Trial:
    kept = trial.user_attrs
    worth = kept.get("worth")
    return Trial(
        number=kept["number"],
        settings=kept["settings"],
        state="waiting" if _interrupted(trial) else kept["state"],
        judgements=tuple(
            Judgement(decisions=step, merit=merit)
            for step, merit in sorted(trial.intermediate_values.items())
        ),
        worth=Worth(**worth) if worth else None,
        failures=kept["failures"],
        error=kept.get("error", ""),
        seconds=kept.get("seconds", 0.0),
    )


def _interrupted(trial: FrozenTrial) -> bool:
    return trial.state is TrialState.FAIL and trial.user_attrs["state"] == "running"


def _contains(space: Space, settings: Mapping[str, float]) -> bool:
    """Whether the space contains these settings."""
    return all(tried.contains(settings[name]) for name, tried in space.settings.items())


def _sampler(space: Space, seed: int, number: int) -> BaseSampler:
    """What chooses the settings of one trial, from the seed and the trial's number."""
    drawn = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    return TPESampler(seed=drawn) if space.sampler.kind == "tpe" else RandomSampler(seed=drawn)


class _Halving(SuccessiveHalvingPruner):
    """Successive halving in which a trial that is tried again competes once.

    Optuna compares with failed trials as well, and so with the earlier tries of one of ours.
    """

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Whether to stop a trial, compared with the last try of every other one."""
        every = study.get_trials(deepcopy=False)
        last = {one.user_attrs.get("number", -1 - one.number): one for one in every}
        known = copy(study)
        known.get_trials = lambda *_, **__: list(last.values())  # type: ignore[method-assign]
        return super().prune(known, trial)


def _pruner(space: Space) -> BasePruner:
    if space.scheduler.kind == "asha":
        return _Halving(
            min_resource=space.judged_after[0], reduction_factor=space.scheduler.reduction
        )
    if space.scheduler.kind == "median":
        return MedianPruner(n_startup_trials=_LEAST_FINISHED)
    return NopPruner()


def _distribution(name: str, values: Values) -> BaseDistribution:
    """The values of a setting, as Optuna has them."""
    whole = spans(Recipe)[name].whole
    if values.values:
        return CategoricalDistribution([int(v) if whole else float(v) for v in values.values])
    assert values.low is not None  # so __post_init__ has it, as that of high
    assert values.high is not None
    if whole:
        return IntDistribution(int(values.low), int(values.high), log=values.logarithmic)
    return FloatDistribution(values.low, values.high, log=values.logarithmic)
