"""The training recipe: PPO on batched twins with Lagrangian prices.

The file is meant to be read from top to bottom; ``stallward train`` makes the shipped policy
again. The policy chooses set-points once a second, and ``partition`` works within them at every
tick, in training as on a node. The normalisation is measured before training. The actor begins as
``partition`` itself (:func:`prefer_first_choice`) or with the weights of another policy
(``start``), and only the critic is trained at first. In each scenario the prices move until the
application suffers what is allowed (``lagrangian``). Which actor of a seed is kept, and which seed,
is decided half on validation twins, on which no policy is trained (``selection``). The best static
setting for all scenarios is evaluated for comparison.

The same seed gives the same policy, unless a time limit ends the training early. Each seed's
policy is written as soon as it is trained, so an interrupted run continues with the missing seeds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from stallward.env.gym.vec_env import TwinVec
from stallward.env.simulation.constraints import Constraints, set_reference_latencies
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.errors import TrainingError
from stallward.training.network.actor import pooled_over_slots, set_parameters
from stallward.training.network.arrays import (
    LOG_SCALES,
    POLICY_FILE,
    SEEDS_FOLDER,
    TRAINING_FILE,
    TrainedPolicy,
    with_log_features,
)
from stallward.training.parallel.executor import Executor, Job, time_for_each
from stallward.training.parallel.local_processes import LOCAL
from stallward.training.parallel.versions import difference, versions_here
from stallward.training.ppo.args import Args, TrainingResult
from stallward.training.ppo.callback import (
    BestActor,
    FeatureRanges,
    Judged,
    Schedule,
    TimeBudget,
    TrainingCallback,
    arm_of_actor,
    arm_of_policy,
    prefer_first_choice,
    reward_scales,
)
from stallward.training.ppo.model import make_model
from stallward.training.ppo.preparation import Prepared, prepare, provenance_of, recipe_sha256
from stallward.training.ppo.saved import load_policy, save_policy
from stallward.training.ppo.start import Start
from stallward.training.progress import Report
from stallward.training.selection.rollout import IDLE, Arm
from stallward.training.selection.selection import as_json

_MIN_SCALE: Final = 0.05
"""The least scale, for features that hardly varied when the normalisation was measured."""
_EVAL_SEED: Final = 20_000
_SELECTION_SEED: Final = 40_000
_SELECTION_NODES: Final = 128
"""Nodes of each scenario on which the actors of one training are compared."""


def train(
    twins: Sequence[FittedTwin],
    args: Args | None = None,
    report: Report | None = None,
    *,
    judged_on: Sequence[FittedTwin] = (),
    rules: Mapping[str, Arm] | None = None,
    folder: Path | None = None,
    start: Start | None = None,
    executor: Executor = LOCAL,
) -> TrainingResult:
    """Train, choose between the seeds, and compare the policy with rules and a static setting.

    Args:
        twins: The twins to train on.
        args: The settings of the recipe.
        report: Called with the progress.
        judged_on: Validation twins, which decide which actor and seed are kept. Without any, the
            training twins decide.
        rules: Rules that are evaluated for comparison; they have no part in the training.
        folder: Where each seed's policy and TensorBoard curves are written. Seeds whose policy is
            already there are not trained again.
        start: The policy with which every seed begins, in place of ``partition``. It is kept
            unless a seed has more merit.
        executor: Runs the trainings of the seeds. Where it does not share files with this
            process, there are no TensorBoard curves.

    Raises:
        TrainingError: If there is no twin, the settings cannot run, the folder's seeds were
            trained with other settings, twins or another start, or the start does not fit.
    """
    args = args or Args()
    if start is not None:
        start.check(args)
        args = start.shortened(args)
    report = report or (lambda _stage, _share: None)
    report("searching the best static setting", 0.0)
    prepared = prepare(twins, judged_on, args)
    selection = prepared.selection
    seeds = range(args.seed, args.seed + args.seeds)
    recipe = recipe_sha256((*prepared.twins, *selection.validation.twins), args, start)
    kept = _kept_seeds(folder, seeds, recipe)
    missing = [seed for seed in seeds if seed not in kept]
    each_s = time_for_each(args.max_seconds, len(missing), executor)
    training = partial(train_seed, prepared, args, start=start)
    logs = folder / "tensorboard" if folder is not None and executor.shares_files else None

    def keep(_number: int, policy: TrainedPolicy) -> None:
        if folder is not None:
            save_policy(_seed_folder(folder, int(policy.provenance["seed"])), policy, args)

    trained = executor.run(
        [Job(f"seed {k}", partial(training, k, seconds=each_s, logs=logs)) for k in missing],
        lambda message, share: report(message, 0.05 + 0.85 * share),
        keep=keep,
    )
    policies = sorted([*kept.values(), *trained], key=lambda p: int(p.provenance["seed"]))
    report("evaluating", 0.9)
    merits = [selection.merit(arm_of_policy(policy)) for policy in policies]
    best = policies[int(np.argmax([merit.value for merit in merits]))]
    began: dict[str, Any] = {}
    if start is not None:
        merit = selection.merit(arm_of_policy(start.policy))
        start_kept = merit.value >= max(one.value for one in merits)
        best = start.policy if start_kept else best
        about = {"merit": merit.value, "score_low": merit.low, "kept": start_kept}
        began = {"start": {**start.facts(), **about}}
    arms: dict[str, Arm] = {
        "ppo": arm_of_policy(best),
        **({} if start is None else {"start": arm_of_policy(start.policy)}),
        "static": Arm.holding(prepared.static),
        "none": Arm.holding(IDLE),
        **(rules or {}),
    }
    fresh = selection.on_fresh_nodes()
    evaluation = {name: fresh.outcomes(arm) for name, arm in arms.items()}
    provenance = {
        **best.provenance,
        **began,
        "judged_on": selection.judged_on(),
        "evaluation": {name: as_json(outcomes) for name, outcomes in evaluation.items()},
        "allowed": selection.allowed(),
        "best_static_action": prepared.static.tolist(),
        "seeds": [int(policy.provenance["seed"]) for policy in policies],
        "merits": [merit.value for merit in merits],
        "scores_low": [merit.low for merit in merits],
        "steps_by_seed": [int(policy.provenance["steps"]) for policy in policies],
        "curves_by_seed": [policy.provenance["curve"] for policy in policies],
    }
    report("done", 1.0)
    return TrainingResult(
        policy=replace(best, provenance=provenance),
        evaluation=evaluation,
        steps_per_s=float(np.mean([policy.provenance["steps_per_s"] for policy in policies])),
    )


def _kept_seeds(
    folder: Path | None, seeds: Sequence[int], recipe: str
) -> dict[int, TrainedPolicy]:
    """The policies of the seeds that are already trained; all in the folder are of one training."""
    if folder is None:
        return {}
    policies = {}
    for seed_folder in sorted((folder / SEEDS_FOLDER).glob("*")):
        if not all((seed_folder / name).exists() for name in (POLICY_FILE, TRAINING_FILE)):
            continue
        policy = load_policy(seed_folder)
        if policy.provenance.get("recipe") != recipe:
            raise TrainingError(
                f"{seed_folder} was trained on other twins, with other settings or from another "
                "start.",
                next_step="Name a new directory with --out, or take the same settings.",
            )
        other = difference(versions_here(), policy.provenance.get("versions", {}))
        if other:
            raise TrainingError(
                f"{seed_folder} was trained by other versions: {other}.",
                next_step="Name a new directory with --out, or take the same versions.",
            )
        policies[int(policy.provenance["seed"])] = policy
    return {seed: policies[seed] for seed in seeds if seed in policies}


def _seed_folder(folder: Path, seed: int) -> Path:
    return folder / SEEDS_FOLDER / f"{seed}"


def train_seed(
    prepared: Prepared,
    args: Args,
    seed: int,
    report: Report,
    *,
    seconds: float = math.inf,
    logs: Path | None = None,
    start: Start | None = None,
    schedule: Schedule | None = None,
    judged: Judged = lambda _decisions, _score: None,
) -> TrainedPolicy:
    """Train one policy.

    Args:
        prepared: The twins, and what is allowed on them.
        args: The settings of the training.
        seed: Everything random follows from it.
        report: Called with the progress.
        seconds: The most time for the training.
        logs: The folder for TensorBoard curves; without one there are none.
        start: The policy with which it begins, which fits the settings; by default ``partition``.
        schedule: When actors are judged; by default forty times.
        judged: Called after each time.
    """
    torch.set_num_threads(1)
    twins, constraints, selection = prepared.twins, prepared.constraints, prepared.selection
    features = args.feature_set
    vec = TwinVec(
        twins,
        args.n_envs,
        args.settings,
        roll_in=args.others,
        features=features,
        asymmetric=True,
        seed=seed,
    )
    set_reference_latencies(vec.simulation, constraints.ample)
    ranges = FeatureRanges()
    mean, scale = _measure_normalisation(twins, args, seed, constraints, ranges)
    if start is not None:
        mean, scale = start.policy.mean, start.policy.scale  # its weights are made for these
    budget = TimeBudget(seconds)
    model = make_model(
        vec,
        args,
        mean,
        scale,
        seed=seed,
        budget=budget,
        logs=logs,
        critic_features=vec.critic_only,
    )
    if start is None:
        prefer_first_choice(model.policy, args.auto_share)
    else:
        set_parameters(model.policy, start.policy.parameters)
    vec.reward_scales[:] = reward_scales(vec.simulation.terms.prices)
    eval_vec = TwinVec(
        twins, args.n_envs, args.settings, features=features, seed=_EVAL_SEED + seed
    )
    set_reference_latencies(eval_vec.simulation, constraints.ample)
    actor_selection = selection.with_nodes(_SELECTION_NODES, _SELECTION_SEED + seed)
    settings = args.settings
    best = BestActor(
        lambda act: actor_selection.merit(arm_of_actor(act, settings)).value, schedule, judged
    )
    callback = TrainingCallback(
        args, constraints, eval_vec, budget, ranges, best, partial(_report_seed, report, seed)
    )
    began_s = time.monotonic()
    model.learn(args.total_steps, callback=callback, tb_log_name=f"seed{seed}")
    elapsed_s = time.monotonic() - began_s
    return TrainedPolicy(
        **best.arrays,
        low=ranges.low(),
        high=ranges.high(),
        table=vec.simulation.table,
        features=features,
        partition=settings.partition,
        ticks_per_action=settings.ticks_per_action,
        provenance={
            **provenance_of(
                twins, args, seed, model.num_timesteps, vec.simulation.terms.prices, start
            ),
            "recipe": recipe_sha256((*twins, *selection.validation.twins), args, start),
            "steps_per_s": model.num_timesteps / max(elapsed_s, 1e-9),
            "curve": callback.curve,
            "kept_after": best.decisions,
        },
    )


def _report_seed(report: Report, seed: int, message: str, share: float) -> None:
    report(f"seed {seed}: {message}", share)


def _measure_normalisation(
    twins: Sequence[FittedTwin],
    args: Args,
    seed: int,
    constraints: Constraints,
    ranges: FeatureRanges,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Measure the mean and scale of every feature, under random actions that are held for a while.

    Logarithms of features are taken first. The features of a slot are pooled over all slots.
    """
    batch, features = 256, args.feature_set
    simulation = constraints.simulate(twins, batch, args.settings, seed=seed)
    rng = np.random.default_rng(seed)
    sizes = np.array(simulation.table.sizes)
    action = np.zeros((batch, len(sizes)), dtype=np.int64)
    steps = []
    for k in range(100):
        if k % 5 == 0:
            redrawn = rng.random(batch) < 0.3
            drawn = rng.integers(sizes, size=(batch, len(sizes)))
            action = np.where(redrawn[:, None], drawn, action)
        steps.append(simulation.step(action).observation[:, : features.size].copy())
    observations = np.stack(steps)
    ranges.update(observations)
    flat = observations.reshape(-1, features.size)
    logs = with_log_features(flat, LOG_SCALES[: features.size]).astype(np.float64)
    mean = pooled_over_slots(logs.mean(axis=0), features)
    variance = pooled_over_slots(np.square(logs - mean).mean(axis=0), features)
    scale = np.maximum(np.sqrt(variance), _MIN_SCALE)
    return mean.astype(np.float32), scale.astype(np.float32)
