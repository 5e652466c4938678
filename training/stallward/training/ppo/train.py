"""The training recipe: PPO on the batched twins, warm-started and priced by Lagrangians.

One file to read from top to bottom; ``stallward train`` makes the shipped policy again. The
normalisation is measured before training, the actor first imitates a teacher that may look ahead
(``teacher``, ``warm_start``), and in each scenario prices move until the application suffers what
is allowed (``constraints``). How long a seed learns, and which one is kept, is decided half on
twins that none was trained on (``selection``); the best static setting for all is judged beside
them.

The same seed gives the same policy, unless time cuts it short. Each seed's policy is written as
soon as it is trained: an interrupted run goes on with the seeds that are missing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

from stallward.agent.desired import ACTION_SIZES
from stallward.env.gym.vec_env import TwinVec
from stallward.env.simulation.constraints import Constraints, set_standards
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.errors import TrainingError
from stallward.training.imitation.behaviour_cloning import imitate, likeliest
from stallward.training.imitation.demonstrations import LESSONS_FILE, Demonstrations
from stallward.training.imitation.teacher import teach
from stallward.training.network.actor import policy_settings
from stallward.training.network.arrays import (
    POLICY_FILE,
    SEEDS_FOLDER,
    TrainedPolicy,
    Weights,
    load_policy_arrays,
    save_policy,
)
from stallward.training.network.log_features import FINE, with_log_features
from stallward.training.network.slot_policy import SlotPolicy, pooled_over_slots
from stallward.training.parallel import parts_of, side_by_side, time_for_each
from stallward.training.ppo.args import Args, TrainingResult
from stallward.training.ppo.callback import Best, Clock, Ranges, TrainingCallback, reward_scales
from stallward.training.ppo.provenance import provenance_of, recipe_sha256
from stallward.training.progress import Report
from stallward.training.selection.rollout import constant
from stallward.training.selection.selection import (
    MakeAct,
    Selection,
    as_json,
    make_selection,
    memoryless,
)
from stallward.training.selection.static_settings import StaticSettings, make_constraints
from stallward.training.synthetic_scenarios import compose

_MIN_SCALE: Final = 0.05
"""A feature that hardly moved before training must not blow up when it does."""
_BESIDE_SEED: Final = 20_000
_PUPIL_SEED: Final = 30_000
_LOOK_SEED: Final = 40_000
_LOOK_NODES: Final = 128
"""Of each scenario, on which actors are compared while they learn."""


def train(
    twins: Sequence[FittedTwin],
    args: Args | None = None,
    report: Report | None = None,
    *,
    judged_on: Sequence[FittedTwin] = (),
    rules: Mapping[str, MakeAct] | None = None,
    folder: Path | None = None,
) -> TrainingResult:
    """Train, choose between the seeds, and evaluate beside the best static setting.

    Args:
        twins: Trained on.
        args: The recipe's settings.
        report: Told how far it is.
        judged_on: Twins that decide which seed is kept, and how far trained; those trained on
            where there are none.
        rules: Evaluated beside the policy; they have no part in its training.
        folder: The lessons, each seed's policy and TensorBoard curves go there; what is there
            already is not taught or trained again.

    Raises:
        TrainingError: If there is no twin, the settings cannot run, or the folder's seeds were
            trained otherwise.
    """
    args = args or Args()
    report = report or (lambda _stage, _share: None)
    if not twins:
        raise TrainingError("There is no twin to train on.", next_step="Run `stallward fit`.")
    names = [twin.scenario.name for twin in twins]
    if len(set(names)) < len(names):
        raise TrainingError(
            f"Two twins are of the same scenario: {', '.join(sorted(names))}.",
            next_step="Name one twin of each.",
        )
    report("searching the best static setting", 0.0)
    world = (*twins, *compose(twins, args.composing, args.settings, seed=args.seed))
    constraints, statics = make_constraints(world, args.settings, args.slack, seed=args.seed)
    static = statics.best(constraints)
    selection = make_selection(
        twins,
        judged_on,
        args.settings,
        slack=args.slack,
        episodes=args.evaluation_episodes,
        seed=args.seed,
    )
    seeds = range(args.seed, args.seed + args.seeds)
    recipe = recipe_sha256((*world, *selection.strangers.twins), args)
    kept = _kept_seeds(folder, seeds, recipe)
    each_s = time_for_each(args.max_seconds, max(args.seeds - len(kept), 1))
    missing = [seed for seed in seeds if seed not in kept]
    trained = []
    if missing:
        lessons = _lessons(world, args, statics, constraints, folder, recipe, report)
        training = partial(_train_seed, world, args, statics, constraints, lessons, selection)
        trained = side_by_side(
            [partial(training, k, each_s, folder) for k in missing],
            lambda message, share: report(message, 0.1 + 0.8 * share),
        )
    candidates = sorted([*kept.values(), *trained], key=lambda p: int(p.provenance["seed"]))
    report("evaluating", 0.9)
    merits = [selection.merit(memoryless(policy.act)) for policy in candidates]
    chosen = candidates[int(np.argmax([merit.value for merit in merits]))]
    idle = np.zeros(len(ACTION_SIZES), dtype=np.int64)
    arms: dict[str, MakeAct] = {
        "ppo": memoryless(chosen.act),
        "static": lambda _nodes: constant(static),
        "none": lambda _nodes: constant(idle),
        **(rules or {}),
    }
    fresh = selection.on_fresh_nodes()
    evaluation = {arm: fresh.outcomes(make) for arm, make in arms.items()}
    provenance = {
        **chosen.provenance,
        "judged_on": selection.judged_on(),
        "evaluation": {name: as_json(found) for name, found in evaluation.items()},
        "allowed": selection.allowed(),
        "best_static_action": static.tolist(),
        "seeds": [int(policy.provenance["seed"]) for policy in candidates],
        "merits": [merit.value for merit in merits],
        "scores_low": [merit.low for merit in merits],
        "curves_by_seed": [policy.provenance["curve"] for policy in candidates],
    }
    report("done", 1.0)
    return TrainingResult(
        policy=replace(chosen, provenance=provenance),
        evaluation=evaluation,
        steps_per_s=float(np.mean([policy.provenance["steps_per_s"] for policy in candidates])),
    )


def _kept_seeds(
    folder: Path | None, seeds: Sequence[int], recipe: str
) -> dict[int, TrainedPolicy]:
    """The policies of seeds that were trained before."""
    if folder is None:
        return {}
    found = {}
    for seed in seeds:
        place = _place(folder, seed)
        if not (place / POLICY_FILE).exists():
            continue
        policy = load_policy_arrays(place)
        if policy.provenance.get("recipe") != recipe:
            raise TrainingError(
                f"{place} was trained on other twins or with other settings.",
                next_step="Name a new directory with --out, or take the same settings.",
            )
        found[seed] = policy
    return found


def _place(folder: Path, seed: int) -> Path:
    return folder / SEEDS_FOLDER / f"{seed}"


def _lessons(
    twins: Sequence[FittedTwin],
    args: Args,
    statics: StaticSettings,
    constraints: Constraints,
    folder: Path | None,
    recipe: str,
    report: Report,
) -> Demonstrations:
    """What the teacher says, or said before the run was interrupted."""
    file = None if folder is None else folder / LESSONS_FILE
    recipe = f"{recipe} {args.seed}"
    kept = None if file is None else Demonstrations.load(file, recipe)
    if kept is not None:
        return kept
    parts = [
        partial(_teach, twins[part], args, statics.only(part), constraints.only(part))
        for part in parts_of(len(twins))
    ]
    taught = Demonstrations.of_all(
        side_by_side(parts, lambda said, share: report(said, 0.1 * share))
    )
    if file is not None:
        taught.save(file, recipe)
    return taught


def _teach(
    twins: Sequence[FittedTwin],
    args: Args,
    statics: StaticSettings,
    constraints: Constraints,
    report: Report,
) -> Demonstrations:
    return teach(
        twins, statics, constraints, args.settings, args.teaching,
        seed=args.seed, price_range=args.price_range, report=report,
    )  # fmt: skip


def _train_seed(
    twins: Sequence[FittedTwin],
    args: Args,
    statics: StaticSettings,
    constraints: Constraints,
    lessons: Demonstrations,
    selection: Selection,
    seed: int,
    seconds: float,
    folder: Path | None,
    report: Report,
) -> TrainedPolicy:
    torch.set_num_threads(1)
    vec = TwinVec(
        twins, args.n_envs, args.settings, others=args.others, tells_critic=True, seed=seed
    )
    set_standards(vec.simulation, constraints.ample)
    ranges = Ranges()
    mean, scale = _measure(twins, args, seed, constraints, ranges)
    clock = Clock(seconds)
    logs = None if folder is None else folder / "tensorboard"
    model = make_learner(vec, args, mean, scale, seed=seed, clock=clock, logs=logs, told=vec.told)
    learn = partial(
        imitate, model, smoothing=args.smoothing, gradient_steps=args.imitation_steps, seed=seed
    )
    learn(lessons)
    brief = replace(args.teaching, lessons=args.pupil_lessons, unused_lessons=0, price_rate=0.0)
    corrected = teach(
        twins, statics, constraints, args.settings, brief,
        seed=_PUPIL_SEED + seed, price_range=args.price_range,
        act=partial(likeliest, model), prices=lessons.prices,
        report=partial(_say, report, seed),
    )  # fmt: skip
    learn(lessons.and_also(corrected))
    vec.simulation.terms.prices[:] = lessons.prices
    vec.reward_scales[:] = reward_scales(lessons.prices)
    beside = TwinVec(twins, args.n_envs, args.settings, seed=_BESIDE_SEED + seed)
    set_standards(beside.simulation, constraints.ample)
    look = selection.with_nodes(_LOOK_NODES, _LOOK_SEED + seed)
    best = Best(lambda act: look.merit(memoryless(act)).value)
    follow = TrainingCallback(
        args, constraints, beside, clock, ranges, best, partial(_say, report, seed)
    )
    began_s = time.monotonic()
    model.learn(args.total_steps, callback=follow, tb_log_name=f"seed{seed}")
    elapsed_s = time.monotonic() - began_s
    policy = TrainedPolicy(
        **best.arrays,
        low=ranges.low(),
        high=ranges.high(),
        ticks_per_action=args.settings.ticks_per_action,
        provenance={
            **provenance_of(twins, args, seed, model.num_timesteps, vec.simulation.terms.prices),
            "recipe": recipe_sha256((*twins, *selection.strangers.twins), args),
            "teacher": lessons.figures([twin.scenario.name for twin in twins]),
            "steps_per_s": model.num_timesteps / max(elapsed_s, 1e-9),
            "curve": follow.curve,
            "kept_after": best.decisions,
        },
    )
    if folder is not None:
        save_policy(_place(folder, seed), policy)
    return policy


def make_learner(
    vec: VecEnv,
    args: Args,
    mean: Weights,
    scale: Weights,
    *,
    seed: int,
    clock: Clock,
    logs: Path | None = None,
    told: int = 0,
) -> PPO:
    """PPO with the recipe's network and settings, before it has learned anything.

    Args:
        vec: Where it learns: observations and actions are those of a node.
        args: The recipe's settings.
        mean: The mean of every feature, with which observations are normalised.
        scale: The scale of every feature.
        seed: Everything random follows from it.
        clock: How much time is left; the learning rate falls with it.
        logs: Folder for TensorBoard's curves.
        told: Numbers behind an observation that only the critic sees.
    """
    return PPO(
        SlotPolicy,
        vec,
        n_steps=args.n_steps,
        batch_size=args.batch_size,
        n_epochs=args.n_epochs,
        learning_rate=lambda left: args.learning_rate * (0.1 + 0.9 * min(left, clock.left)),
        gamma=args.gamma,
        gae_lambda=args.gae_lambda,
        ent_coef=args.ent_coef,
        clip_range=args.clip_range,
        seed=seed,
        device="cpu",
        tensorboard_log=None if logs is None else str(logs),
        policy_kwargs=policy_settings(mean, scale, told=told),
    )


def _say(report: Report, seed: int, message: str, share: float) -> None:
    report(f"seed {seed}: {message}", share)


def _measure(
    twins: Sequence[FittedTwin], args: Args, seed: int, constraints: Constraints, ranges: Ranges
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and scale of every feature, magnified, under random and idle actions that dwell.

    Those of a slot are the same for all slots.
    """
    batch = 256
    simulation = constraints.simulate(twins, batch, args.settings, seed=seed)
    rng = np.random.default_rng(seed)
    sizes = np.array(ACTION_SIZES)
    action = np.zeros((batch, len(sizes)), dtype=np.int64)
    seen = []
    for k in range(100):
        if k % 5 == 0:
            change = rng.random(batch) < 0.3
            fresh = rng.integers(sizes, size=(batch, len(sizes)))
            action = np.where(change[:, None], fresh, action)
        seen.append(simulation.step(action).observation.copy())
    observations = np.stack(seen)
    ranges.see(observations)
    flat = with_log_features(observations.reshape(-1, observations.shape[-1]), FINE).astype(
        np.float64
    )
    mean = pooled_over_slots(flat.mean(axis=0))
    variance = pooled_over_slots(np.square(flat - mean).mean(axis=0))
    scale = np.maximum(np.sqrt(variance), _MIN_SCALE)
    return mean.astype(np.float32), scale.astype(np.float32)
