"""A training that begins with a policy: what it keeps of it, and when it keeps it as it is."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brief_training import BRIEF, TWO_SEEDS
from slot_policies import observations, slot_policy

from stallward.agent.action_table import LEVELS
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.observation.encoder import PHASES
from stallward.env.testing import small_twin
from stallward.models.registry import load_policy as load_onnx
from stallward.training.errors import TrainingError
from stallward.training.export.onnx_file import export_policy
from stallward.training.network.arrays import LOG_SCALES, TrainedPolicy
from stallward.training.ppo.callback import is_actor_parameter
from stallward.training.ppo.saved import load_policy
from stallward.training.ppo.start import Start
from stallward.training.ppo.train import train, train_seed
from stallward.training.selection.rollout import Arm
from stallward.training.selection.selection import Merit, Selection

pytestmark = pytest.mark.usefixtures("one_processor")

TWIN = small_twin()
FACTS = {"twins": {"redis-mix": {}}, "start": {"twins": ["nginx-hogs"]}, "steps": 9, "seed": 4}
START = Start(name="older", sha256="ab12", policy=slot_policy(provenance=FACTS))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training of two seeds. Tests share it, and do not change it."""
    folder = tmp_path_factory.mktemp("run")
    train([TWIN], TWO_SEEDS, folder=folder, start=START)
    return folder


def judged(run: Path, seeds: tuple[float, float], start: float) -> TrainedPolicy:
    """What the training of this folder ends with if its seeds and the start have these merits."""
    values = iter((*seeds, start))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Selection, "merit", lambda *_: Merit(value=(one := next(values)), low=one))
        return train(
            [TWIN], TWO_SEEDS, folder=run, start=START, rules={"partition": Arm.of_partition()}
        ).policy


@pytest.mark.slow
def test_while_only_the_critic_learns_the_actor_is_that_of_the_start(tmp_path: Path) -> None:
    train([TWIN], replace(BRIEF, total_steps=1), folder=tmp_path, start=START)
    policy = load_policy(tmp_path / "seeds/1")
    seen = observations(200)
    np.testing.assert_array_equal(policy.act(seen), START.policy.act(seen))
    for name in filter(is_actor_parameter, START.policy.parameters):
        np.testing.assert_array_equal(policy.parameters[name], START.policy.parameters[name])


@pytest.mark.slow
def test_few_decisions_change_the_weights_and_not_the_normalisation(run: Path) -> None:
    seeds = [load_policy(run / f"seeds/{seed}") for seed in (1, 2)]
    for policy in seeds:
        np.testing.assert_array_equal(policy.mean, START.policy.mean)
        np.testing.assert_array_equal(policy.scale, START.policy.scale)
        assert 0.0 < np.abs(policy.w0 - START.policy.w0).max() < 0.1, "it began there"
        assert policy.provenance["start"] == {
            "name": "older", "sha256": "ab12", "twins": ["nginx-hogs", "redis-mix"]
        }  # fmt: skip
        assert policy.provenance["args"]["critic_rollouts"] == 1
    assert not np.array_equal(seeds[0].w0, seeds[1].w0)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_and_the_start_is_applied_once(
    run: Path, tmp_path: Path
) -> None:
    first = train([TWIN], BRIEF, folder=tmp_path, start=START)
    before = (tmp_path / "seeds/1/policy.zip").stat().st_mtime_ns
    resumed = train([TWIN], TWO_SEEDS, folder=tmp_path, start=START)
    assert (tmp_path / "seeds/1/policy.zip").stat().st_mtime_ns == before
    for seed in (1, 2):
        one, other = (load_policy(folder / f"seeds/{seed}") for folder in (run, tmp_path))
        np.testing.assert_array_equal(one.w0, other.w0)
    assert resumed.policy.provenance["merits"][0] == first.policy.provenance["merits"][0]
    assert resumed.policy.provenance["start"]["merit"] == first.policy.provenance["start"]["merit"]


@pytest.mark.slow
def test_seeds_from_another_start_or_from_none_are_not_taken(run: Path) -> None:
    for other in (None, replace(START, sha256="cd34")):
        with pytest.raises(TrainingError, match="from another start"):
            train([TWIN], TWO_SEEDS, folder=run, start=other)


@pytest.mark.slow
def test_the_start_is_kept_unless_a_seed_is_judged_better(run: Path, tmp_path: Path) -> None:
    kept = judged(run, (0.1, 0.3), 0.3)
    np.testing.assert_array_equal(kept.w0, START.policy.w0)
    facts = kept.provenance
    assert facts["start"] == {
        **START.facts(), "merit": 0.3, "score_low": 0.3, "kept": True
    }  # fmt: skip
    assert (list(facts["twins"]), facts["seed"]) == (["redis-mix"], 4), "its own training"
    assert facts["steps_by_seed"] == [2048, 2048]
    assert facts["evaluation"]["ppo"] == facts["evaluation"]["start"]
    export_policy(kept, tmp_path / "kept.onnx")
    card = (tmp_path / "kept.md").read_text()
    assert "Nothing that was trained from `older` was judged better than it, so this is" in card
    assert "| start (kept) | 0.300 | 0.300 |" in card
    assert "| 2 | 0.300 | 0.300 |" in card
    assert "- It is `older` (SHA-256 `ab12`)" in card


@pytest.mark.slow
def test_a_better_seed_is_kept_and_its_card_names_the_start(run: Path, tmp_path: Path) -> None:
    better = judged(run, (0.1, 0.3), 0.2)
    np.testing.assert_array_equal(better.w0, load_policy(run / "seeds/2").w0)
    assert better.provenance["start"]["kept"] is False
    export_policy(better, tmp_path / "better.onnx")
    card = (tmp_path / "better.md").read_text()
    assert "its merit is 0.300, and that of `older` 0.200." in card
    assert "- The training began with the weights of `older` (SHA-256 `ab12`)," in card
    assert "  which was trained on the twins of `nginx-hogs`, `redis-mix`." in card
    assert "| start | 0.200 | 0.200 |" in card
    assert "| 2 (kept) | 0.300 | 0.300 |" in card
    assert "before training the policy is `older`." in card
    columns = next(line for line in card.splitlines() if line.startswith("| scenario |"))
    assert " | start | " in columns
    assert "`start` is the policy with which the training began." in card
    assert load_onnx(tmp_path / "better.onnx").metadata.provenance["start"]["name"] == "older"


def refusal(policy: TrainedPolicy, **settings: Any) -> str:
    with pytest.raises(TrainingError) as refused:
        train([TWIN], replace(BRIEF, **settings), start=replace(START, policy=policy))
    return str(refused.value)


def test_a_start_that_does_not_fit_is_refused() -> None:
    assert refusal(slot_policy(features=PHASES)) == (
        "older does not fit this training. It has: features phases and not basic. "
        "Add --features phases."
    )
    assert "features basic and not phases. Add --features basic." in refusal(
        START.policy, features="phases"
    )
    assert "It has: actions levels and not set-points. Name another" in refusal(
        slot_policy(table=LEVELS)
    )
    assert "It has: ticks of a decision 2 and not 10. Name another policy" in refusal(
        replace(START.policy, ticks_per_action=2)
    )
    numbers = PartitionThresholds(margin_share=0.125)
    assert "features phases and not basic, margin_share 0.125 and not 0.03. Name" in refusal(
        slot_policy(features=PHASES, partition=numbers)
    )
    fine = LOG_SCALES[: START.policy.features.size] * 2.0
    assert "logarithms of other features" in refusal(replace(START.policy, fine=fine))


@pytest.mark.parametrize(
    ("facts", "wrong"),
    [
        ({"twins": 5}, "twins"),
        ({"twins": None}, "twins"),
        ({"twins": "redis-mix"}, "twins"),
        ({"twins": ["redis-mix", ["nginx-hogs"]]}, "twins"),
        ({"start": []}, "start"),
        ({"start": {"twins": [1, "redis-mix"]}}, "start"),
        ({"steps": "many", "twins": 5}, "steps, twins"),
    ],
)
def test_a_start_whose_own_training_cannot_be_named_is_refused_at_once(
    facts: dict[str, Any], wrong: str
) -> None:
    assert refusal(slot_policy(provenance=facts)) == (
        f"What older says of its own training cannot be read: {wrong}. "
        "Name another policy with --from, or train from the beginning."
    )


def test_a_start_travels_to_the_worker_of_a_seed_by_value() -> None:
    there = pickle.loads(pickle.dumps(partial(train_seed, start=START))).keywords["start"]
    assert there.facts() == START.facts()
    for name, array in START.policy.parameters.items():
        np.testing.assert_array_equal(there.policy.parameters[name], array)


def test_the_critic_alone_learns_for_a_tenth_of_the_decisions_at_most() -> None:
    full = replace(BRIEF, total_steps=4_000_000)
    assert START.shortened(full).critic_rollouts == full.critic_rollouts
    assert START.shortened(replace(BRIEF, total_steps=64 * 16 * 50)).critic_rollouts == 5
    assert START.shortened(BRIEF).critic_rollouts == 1
    assert START.shortened(replace(BRIEF, critic_rollouts=0)).critic_rollouts == 0
