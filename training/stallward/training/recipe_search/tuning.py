"""Runs the trials of a search on a Ray that is open already, by Ray Tune."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ray import tune
from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    FIFOScheduler,
    MedianStoppingRule,
    TrialScheduler,
)
from ray.tune.search.basic_variant import BasicVariantGenerator

from stallward.agent.control_law.thresholds import spans
from stallward.training.errors import ClusterError, SearchError
from stallward.training.parallel.ray_tasks import ATTEMPTS, make_lookout, sigterm_held_back
from stallward.training.ppo.recipe import Recipe
from stallward.training.progress import Report
from stallward.training.recipe_search.listener import (
    Listener,
    Listening,
    OutOfTime,
    listener,
    listening,
)
from stallward.training.recipe_search.space import Space, Values, base_values
from stallward.training.recipe_search.trial import (
    DECISIONS,
    JUDGEMENTS,
    MERIT,
    WORTH,
    Search,
    run_trial,
)
from stallward.training.recipe_search.trials import TrialLog, number_of

# ---------- Ray Tune's schedulers, so that a search that was interrupted stops trials as one that was not
# Ray Tune does not keep what its schedulers know. So they are told again what finished trials
# reported. The first trial, the recipe that is searched around, is never stopped: every other one
# can be compared with it after all decisions.


def make_scheduler(space: Space) -> Any:
    """The scheduler that a space names, with the units of trials."""
    first = space.judged_after[0]
    if space.scheduler.kind == "asha":
        return Asha(
            time_attr=DECISIONS,
            max_t=space.budget.decisions,
            grace_period=first,
            reduction_factor=space.scheduler.reduction,
        )
    if space.scheduler.kind == "median":
        return Median(
            time_attr=DECISIONS,
            grace_period=first,
            # It would pause trials in order to give others time, and such a training is lost.
            min_time_slice=math.inf,
            # "Pause" is its word for a trial that it would stop. Else it takes no result of one
            # that it wanted to stop and that goes on: the first trial.
            hard_stop=False,
        )
    return FIFOScheduler()


class _Remembering:
    """Tells a scheduler what finished trials reported, and notes which ones it stops."""

    def on_trial_add(self, controller: Any, trial: Any) -> None:
        """Take a trial, which may be one of a search that continues."""
        parent: Any = super()
        parent.on_trial_add(controller, trial)
        if not trial.is_finished():
            return
        for judgement in (trial.last_result or {}).get(JUDGEMENTS, ()):
            result = {DECISIONS: judgement.decisions, MERIT: judgement.merit}
            parent.on_trial_result(controller, trial, result)

    def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Decide about a trial that was judged."""
        parent: Any = super()
        decision: str = parent.on_trial_result(controller, trial, result)
        number, ends_anyway = number_of(trial.trial_id), result.get(WORTH) is not None
        if decision == TrialScheduler.CONTINUE or number == 0 or ends_anyway:
            return str(TrialScheduler.CONTINUE)
        listener().stopped_early(number)
        return str(TrialScheduler.STOP)


class Asha(_Remembering, AsyncHyperBandScheduler):  # type: ignore[misc]
    """Asynchronous successive halving (Li et al., 2018)."""


class Median(_Remembering, MedianStoppingRule):  # type: ignore[misc]
    """The median stopping rule (Golovin et al., 2017)."""


TUNE_FOLDER: Final = "tune"
"""Where Ray Tune keeps its own state, in the directory of the search."""
_LOGGER: Final = "ray.tune"
_STATES: Final = "experiment_state-*.json"
"""What Ray Tune writes about all trials; the newest counts."""
_TUNE_ENVIRONMENT: Final = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # trials.json has what they would write
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends this command at once
    "TUNE_GLOBAL_CHECKPOINT_S": "1",
    "RAY_AIR_NEW_OUTPUT": "0",  # the other one prints though it is told to be silent
}


def run_trials(
    search: Search,
    log: TrialLog,
    folder: Path,
    *,
    report: Report,
    store: Callable[[], None],
) -> TrialLog:
    """Run the trials of a search that are not over.

    Args:
        search: What all trials have in common.
        log: What is known of them from earlier commands.
        folder: The directory of the search.
        report: Called with the progress.
        store: Called after a trial is over.

    Returns:
        What is known of them in the end.

    Raises:
        SearchError: If the state of an earlier command cannot be read.
        ClusterError: If the cluster was lost.
    """
    budget, lookout = search.space.budget, make_lookout()
    with sigterm_held_back() as raise_sigterm, _environment():

        def interrupt() -> None:
            raise_sigterm()
            try:
                lookout.check()
            except ClusterError as error:
                raise _LostError(error) from error

        follower = Listener(
            log,
            folder,
            trials=budget.trials,
            limit_s=float("inf") if budget.minutes is None else 60.0 * budget.minutes,
            report=report,
            store=store,
            interrupt=interrupt,
        )
        try:
            with listening(follower):
                _tuner(search, folder / TUNE_FOLDER).fit()
        except _LostError as lost:
            raise lost.error from None
    return follower.log


class _LostError(BaseException):
    """The cluster was lost.

    After an ``Exception`` Ray Tune would end its trials, for which it needs the cluster: without
    one, Ray ends this process by ``_exit``.
    """

    def __init__(self, error: ClusterError) -> None:
        super().__init__(error)
        self.error = error


def _tuner(search: Search, place: Path) -> Any:
    """A tuner of all trials, or of those that an earlier command left."""
    trainable = tune.with_parameters(run_trial, search=search)
    if _can_go_on(place):
        return tune.Tuner.restore(str(place), trainable, resume_errored=True)
    space = search.space
    return tune.Tuner(
        trainable,
        param_space={name: _domain(name, values) for name, values in space.settings.items()},
        tune_config=tune.TuneConfig(
            metric=MERIT,
            mode="max",
            num_samples=space.budget.trials,
            scheduler=make_scheduler(space),
            search_alg=BasicVariantGenerator(
                points_to_evaluate=[base_values(space)], random_state=search.args.seed
            ),
        ),
        run_config=tune.RunConfig(
            name=place.name,
            storage_path=str(place.parent.absolute()),
            stop=OutOfTime(),
            callbacks=[Listening()],
            failure_config=tune.FailureConfig(max_failures=ATTEMPTS - 1),
            verbose=0,
        ),
    )


def _can_go_on(place: Path) -> bool:
    """Whether an earlier command left the state of a search.

    Raises:
        SearchError: If its state cannot be read.
    """
    states = sorted(place.glob(_STATES))
    if not states or not tune.Tuner.can_restore(str(place)):
        return False
    try:
        json.loads(states[-1].read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SearchError(
            f"The state of the search in {states[-1]} cannot be read: {error}",
            next_step=f"Remove {place}; then the same command tries all trials anew.",
        ) from error
    return True


def _domain(name: str, values: Values) -> Any:
    """The values of a setting, as Ray Tune has them."""
    whole = spans(Recipe)[name].whole
    if values.values:
        return tune.choice([int(v) if whole else float(v) for v in values.values])
    assert values.low is not None  # so __post_init__ has it, as that of high
    assert values.high is not None
    if whole:
        low, high = int(values.low), int(values.high) + 1
        return (tune.lograndint if values.logarithmic else tune.randint)(low, high)
    return (tune.loguniform if values.logarithmic else tune.uniform)(values.low, values.high)


@contextmanager
def _environment() -> Iterator[None]:
    """Set what Ray Tune reads from the environment, for the time of a ``with``.

    Why a trial failed is in its table, so Ray Tune prints no traceback.
    """
    logger = logging.getLogger(_LOGGER)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    before = {name: os.environ.get(name) for name in _TUNE_ENVIRONMENT}
    os.environ.update(_TUNE_ENVIRONMENT)
    try:
        yield
    finally:
        logger.setLevel(level)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
