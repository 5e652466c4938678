"""Ray Tune's schedulers, so that a search that was interrupted stops trials as one that was not.

Ray Tune does not keep what its schedulers know. So they are told again what finished trials
reported. The first trial, the recipe that is searched around, is never stopped: every other one
can be compared with it after all decisions.
"""

from __future__ import annotations

import math
from typing import Any

from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    FIFOScheduler,
    MedianStoppingRule,
    TrialScheduler,
)

from stallward.training.recipe_search.listener import listener
from stallward.training.recipe_search.space import Space
from stallward.training.recipe_search.trial import DECISIONS, JUDGEMENTS, MERIT, WORTH
from stallward.training.recipe_search.trials import number_of


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
        """Take a trial, which may be one of a search that goes on."""
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
