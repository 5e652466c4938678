"""One trial in a worker of Ray: a training, judged on the way and at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from stallward.training.parallel.ray_worker import check_versions
from stallward.training.ppo.args import Args
from stallward.training.ppo.best_actor import AfterDecisions
from stallward.training.ppo.policy_arm import arm_of_policy
from stallward.training.ppo.preparation import Prepared
from stallward.training.ppo.recipe import recipe_values
from stallward.training.ppo.train import train_seed
from stallward.training.progress import silent
from stallward.training.recipe_search.space import Space, recipe_of
from stallward.training.recipe_search.trials import Judgement, Trial, Worth, number_of

MERIT: Final = "merit"
"""What Ray Tune compares trials by."""
DECISIONS: Final = "decisions"
"""When it compares them."""
JUDGEMENTS: Final = "judgements"
WORTH: Final = "worth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What all trials of a search have in common."""

    space: Space
    """The space."""
    args: Args
    """The settings of a training by the recipe that is searched around."""
    prepared: Prepared
    """The twins, and how policies are judged."""
    versions: Mapping[str, str]
    """The versions of the process that searches."""
    over: Mapping[int, Trial]
    """Trials of earlier commands that need not run again, by number."""


def run_trial(config: Mapping[str, float], *, search: Search) -> None:
    """Train by the recipe of a trial, and report to Ray Tune what it is worth.

    All trials have the same seed, twins and nodes. On the way the best actor so far is judged as
    in any training. In the end the policy is judged as between seeds, and on fresh nodes.

    Args:
        config: The values of the settings that are searched.
        search: What all trials have in common.

    Raises:
        WorkerError: If this worker has other versions than the process that searches.
    """
    from ray import tune  # noqa: PLC0415 - an extra

    known = search.over.get(number_of(tune.get_context().get_trial_id()))
    if known is not None:
        _report_again(known)
        return
    check_versions(search.versions)
    args = replace(search.args, **recipe_values(recipe_of(search.space, config)))
    judgements: list[Judgement] = []

    def judged(decisions: int, score: float) -> None:
        judgements.append(Judgement(decisions=decisions, merit=float(score)))
        if decisions < args.total_steps:
            tune.report(_result(judgements))

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
    worth = Worth(merit=merit.value, low=merit.low, fresh_merit=fresh.value, fresh_low=fresh.low)
    tune.report(_result(judgements, worth))


def _report_again(trial: Trial) -> None:
    """Report what a trial was worth that ended just before the search was interrupted.

    Ray Tune keeps its state once a second, so it may not know yet.
    """
    from ray import tune  # noqa: PLC0415 - an extra

    judgements = trial.judgements
    for k in range(1, len(judgements) + (trial.worth is None)):
        tune.report(_result(judgements[:k]))
    if trial.worth is not None:
        tune.report(_result(judgements, trial.worth))


def _result(judgements: Sequence[Judgement], worth: Worth | None = None) -> dict[str, Any]:
    latest = judgements[-1]
    return {
        DECISIONS: latest.decisions,
        MERIT: latest.merit if worth is None else worth.merit,
        JUDGEMENTS: tuple(judgements),
        WORTH: worth,
    }
