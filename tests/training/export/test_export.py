"""Exported policies compute the same in PyTorch, NumPy and ONNX Runtime; broken ones fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from slot_policies import slot_policy
from torch import nn

from stallward.agent.action_table import LEVELS, SET_POINTS, ActionTable
from stallward.agent.controllers.partition import PartitionController, PartitionThresholds
from stallward.agent.desired import ACTION_SIZES
from stallward.agent.observation.encoder import (
    BASIC,
    PHASES,
    FeatureSet,
    ObservationEncoder,
    schema_hash,
)
from stallward.agent.observation.raw import to_raw
from stallward.agent.set_points import decode_set_points
from stallward.env.testing import HOG, small_twin
from stallward.env.twin.node import TwinNode
from stallward.evaluation.cli import main
from stallward.models.registry import load_policy
from stallward.training.errors import ExportError, TrainingError
from stallward.training.export.card import (
    good_for,
    metadata,
    standing_headers,
    standing_rows,
    standings,
)
from stallward.training.export.onnx_file import export_policy
from stallward.training.network.actor import (
    NormalisedObservations,
    SlotPolicy,
    actor_arrays,
    policy_kwargs,
)
from stallward.training.network.arrays import (
    LOG_SCALES,
    TrainedPolicy,
    best_actions,
)
from stallward.training.ppo.args import Args
from stallward.training.ppo.saved import save_policy

EACH_TABLE = pytest.mark.parametrize("table", [LEVELS, SET_POINTS], ids=lambda table: table.name)


def random_policy(
    seed: int = 0, table: ActionTable = LEVELS, features: FeatureSet = BASIC
) -> TrainedPolicy:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return rng.normal(0.0, 0.3, shape).astype(np.float32)

    return TrainedPolicy(
        fine=LOG_SCALES[: features.size],
        mean=normal(features.size),
        scale=np.abs(normal(features.size)) + np.float32(0.1),
        low=np.full(features.size, -1.0, dtype=np.float32),
        high=np.full(features.size, 1.0, dtype=np.float32),
        w0=normal(64, features.size),
        b0=normal(64),
        w1=normal(64, 64),
        b1=normal(64),
        w2=normal(sum(table.sizes), 64),
        b2=normal(sum(table.sizes)),
        table=table,
        features=features,
        partition=PartitionThresholds(margin_share=0.125),
        ticks_per_action=2,
        provenance={"seed": seed},
    )


def in_pytorch(policy: TrainedPolicy) -> nn.Sequential:
    """The actor of a policy as a network of PyTorch, which gives the logits of all heads."""
    space = gymnasium.spaces.Box(-np.inf, np.inf, policy.mean.shape)
    parts: list[nn.Module] = [
        NormalisedObservations(space, policy.fine, policy.mean, policy.scale)
    ]
    weights = ((policy.w0, policy.b0), (policy.w1, policy.b1), (policy.w2, policy.b2))
    for weight, bias in weights:
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.weight.data, linear.bias.data = torch.as_tensor(weight), torch.as_tensor(bias)
        parts += [linear, nn.Tanh()]
    return nn.Sequential(*parts[:-1])


@EACH_TABLE
def test_pytorch_and_onnx_runtime_agree_on_ten_thousand_observations(
    tmp_path: Path, table: ActionTable
) -> None:
    policy = random_policy(table=table)
    path = tmp_path / "policy.onnx"
    export_policy(policy, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    drawn = np.random.default_rng(1).normal(0.0, 2.0, (10_000, BASIC.size))
    observations = drawn.astype(np.float32)
    with torch.no_grad():
        expected = in_pytorch(policy)(torch.from_numpy(observations)).numpy()
    logits = np.empty_like(expected)
    actions = np.empty((10_000, len(table.sizes)), dtype=np.int64)
    for i in range(10_000):
        actions[i], logits[i] = (
            out[0] for out in session.run(["action", "logits"], {"observation": observations[[i]]})
        )
    assert np.abs(logits - expected).max() < 1e-5
    # Where two entries of a head are closer than rounding, either is right.
    assert (actions == best_actions(expected, table)).all(axis=1).mean() > 0.999
    # NumPy adds in another order than PyTorch, and its order depends on the processor.
    scale = np.abs(expected).max()
    assert np.abs(policy.logits(observations) - expected).max() < 1e-5 * scale


def shared_network(
    critic_features: int, gain: float, table: ActionTable
) -> tuple[SlotPolicy, TrainedPolicy]:
    """A policy as training makes it, with weights at random, and its arrays."""
    rng = np.random.default_rng(3)
    torch.manual_seed(4)
    mean = rng.normal(0.0, 0.5, BASIC.size).astype(np.float32)
    scale = rng.uniform(0.1, 2.0, BASIC.size).astype(np.float32)
    policy = SlotPolicy(
        gymnasium.spaces.Box(-np.inf, np.inf, (BASIC.size + critic_features,)),
        gymnasium.spaces.MultiDiscrete(list(table.sizes)),
        lambda _left: 1e-3,
        table=table,
        **policy_kwargs(mean, scale, critic_features=critic_features),
    )
    with torch.no_grad():
        for weight in policy.action_net.parameters():
            weight.mul_(gain)
    arrays = actor_arrays(policy)
    ones = np.ones(BASIC.size, dtype=np.float32)
    trained = TrainedPolicy(
        **arrays,
        low=-ones,
        high=ones,
        table=table,
        features=BASIC,
        partition=PartitionThresholds(),
        ticks_per_action=2,
        provenance={},
    )
    return policy, trained


@pytest.mark.slow
@pytest.mark.parametrize(
    ("critic_features", "gain", "table"),
    [(0, 100.0, LEVELS), (5, 100.0, LEVELS), (0, 1.0, LEVELS), (5, 100.0, SET_POINTS)],
)
def test_the_trained_policy_predicts_what_the_exported_file_decides(
    tmp_path: Path, critic_features: int, gain: float, table: ActionTable
) -> None:
    policy, trained = shared_network(critic_features, gain, table)
    path = tmp_path / "policy.onnx"
    export_policy(trained, path)
    rng = np.random.default_rng(5)
    drawn = rng.normal(0.0, 1.0, (1000, BASIC.size + critic_features))
    drawn *= 10.0 ** rng.uniform(-3.0, 2.0, drawn.shape)  # shares, ratios and seconds
    observations = drawn.astype(np.float32)
    predicted, _ = policy.predict(observations, deterministic=True)
    on_node = load_policy(path)
    decided = np.array([on_node._infer(row[: BASIC.size]) for row in observations])
    with torch.no_grad():
        logits = in_pytorch(trained)(torch.from_numpy(observations[:, : BASIC.size])).numpy()
    heads = np.split(logits, np.cumsum(table.sizes)[:-1], axis=1)
    sorted_heads = [np.sort(head, axis=1) for head in heads]
    lead = np.stack([head[:, -1] - head[:, -2] for head in sorted_heads], axis=1)
    clear = lead > 1e-5 * np.abs(logits).max()  # where two are closer, either is right
    assert clear.mean() > 0.999
    assert (predicted == decided)[clear].all()
    assert len(np.unique(decided, axis=0)) > 20, "the policy decides by what it sees"


@EACH_TABLE
def test_a_policy_file_holds_what_a_node_needs_and_has_a_card(
    tmp_path: Path, table: ActionTable
) -> None:
    path = tmp_path / "policy.onnx"
    digest = export_policy(random_policy(table=table), path)
    controller = load_policy(path)
    assert controller.metadata.schema_hash == schema_hash(table)
    assert controller.metadata.table is table
    assert f"action table `{table.name}`" in path.with_suffix(".md").read_text()
    assert controller.metadata.ticks_per_action == 2
    assert controller.metadata.provenance["seed"] == 0
    assert controller.metadata.observation_low == (-1.0,) * BASIC.size
    assert digest in path.with_suffix(".md").read_text()
    assert path.stat().st_size < 100_000
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize("features", [BASIC, PHASES], ids=lambda each: each.name)
@EACH_TABLE
def test_the_code_on_the_card_runs_the_policy_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: ActionTable, features: FeatureSet
) -> None:
    export_policy(random_policy(table=table, features=features), tmp_path / "policy.onnx")
    monkeypatch.chdir(tmp_path)
    _, _, code = (tmp_path / "policy.md").read_text().partition("```python\n")
    names: dict[str, Any] = {}
    exec(code.partition("```")[0], names)
    assert names["truncated"]
    settings = names["env"].unwrapped._simulation.settings
    assert (settings.action_table, settings.ticks_per_action) == (table.name, 2)
    if table is SET_POINTS:
        assert settings.partition.margin_share == 0.125


def test_a_policy_that_was_not_evaluated_has_no_results_in_its_metadata(tmp_path: Path) -> None:
    export_policy(random_policy(), tmp_path / "policy.onnx")
    assert "model-index" not in (tmp_path / "policy.md").read_text()
    facts = {"evaluation": {"ppo": {"small": outcome(score=0.25)}}, "allowed": {}}
    lines = metadata("p", facts)
    assert '- name: "p"' in lines
    assert any(line.startswith("    metrics: [{type: score, value: 0.250}, ") for line in lines)


def test_a_node_divides_by_the_numbers_that_a_policy_was_trained_with(tmp_path: Path) -> None:
    policy = random_policy(table=SET_POINTS)
    export_policy(policy, tmp_path / "policy.onnx")
    assert load_policy(tmp_path / "policy.onnx").metadata.partition == policy.partition


def test_an_exported_policy_of_set_points_decides_on_a_node_as_in_training(tmp_path: Path) -> None:
    policy = replace(random_policy(table=SET_POINTS), ticks_per_action=10)
    export_policy(policy, tmp_path / "policy.onnx")
    on_node, divider = load_policy(tmp_path / "policy.onnx"), PartitionController(policy.partition)
    twin = small_twin(HOG, HOG)
    node = TwinNode(twin.scenario, twin.draws[0], seed=1)
    encoder = ObservationEncoder(twin.scenario.slo_ms)
    for controller in (on_node, divider):
        controller.reset(node.context())
    held_ticks, decided = 0, []
    for _ in range(600):
        sample = node.sample()
        observation = encoder.encode(to_raw(sample))
        decision = on_node.decide(sample, observation)
        if all(state.reference_bytes is None for state in sample.slot_states):
            action, held_ticks = (0,) * len(SET_POINTS.sizes), 0
        elif held_ticks == 0:
            action, held_ticks = tuple(policy.act(observation[None])[0].tolist()), 10
            decided.append(action)
        held_ticks = max(held_ticks - 1, 0)
        assert decision.action == action
        assert decision.desired == divider.divide(sample, decode_set_points(action)).desired
        node.step(decision.desired)
    assert len(decided) == pytest.approx(60, abs=2)
    assert len(set(decided)) > 5, "the policy decides by what it sees"


def outcome(**values: float) -> dict[str, float]:
    zero = dict.fromkeys(("score", "score_low", "progress", "switches_per_s"), 0.0)
    return {**zero, "window_violated": 0.0, "excess": 0.0, "slow": 0.0, **values}


def test_the_card_names_weak_scenarios_and_those_that_were_learned_from(tmp_path: Path) -> None:
    facts = {
        "twins": {"memcached-gcc": {}, "postgres-hogs": {}},
        "judged_on": ["nginx-hogs"],
        "groups": {"memcached-gcc": 1, "postgres-hogs": 2, "composed-1": 4, "composed-2": 2},
        "evaluation": {
            "ppo": {
                "nginx-hogs": outcome(score=0.5, slow=0.03),
                "memcached-gcc": outcome(score=0.2),
            },
            "static": {
                "nginx-hogs": outcome(score=0.4),
                "memcached-gcc": outcome(score=0.3),
            },
            "rule": {
                "nginx-hogs": outcome(score=0.6),
                "memcached-gcc": outcome(score=0.1),
            },
            "partition": {
                "nginx-hogs": outcome(score=0.45),
                "memcached-gcc": outcome(score=0.25),
            },
        },
        "allowed": {
            name: {"window_violated": 0.01, "excess": 0.05, "slow": 0.01}
            for name in ("nginx-hogs", "memcached-gcc")
        },
        "seeds": [3, 4],
        "steps": 20_000_000,
        "merits": [0.31, 0.35],
        "scores_low": [0.41, 0.45],
        "curves_by_seed": [[0.1, 0.3], [0.2, 0.4]],
    }
    export_policy(replace(random_policy(), provenance=facts), tmp_path / "p.onnx")
    text = (tmp_path / "p.md").read_text()
    assert "  1 with 1, 2 with 2, 1 with 4; it decides for" in text
    assert "| `nginx-hogs` | 0.500 | 0.000 | 0.450 | 0.600 | 0.400 | 0.0% | 0.0% | 1.0% |" in text
    assert "- `nginx-hogs`: slow requests 3.00% (allowed 1.00%)." in text
    assert "- No better than the best static setting for all: `memcached-gcc`." in text
    assert "- No better than the tuned rule: `nginx-hogs`." in text
    assert (
        "better than `partition`: 0; worse: 0; not certain: 2. Not trained on: 1 of these" in text
    )
    assert "| 4 (kept) | 0.350 | 0.450 |" in text
    assert "| 3 | 0.310 | 0.410 |" in text
    assert "    line [0.2, 0.4]" in text
    assert "- Trained on the twins of `memcached-gcc`, `postgres-hogs`." in text
    assert "half by the twins of `nginx-hogs`, which are not trained on" in text


def test_the_same_weights_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        export_policy(random_policy(3), tmp_path / f"{name}.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    onnx.checker.check_model(onnx.load(tmp_path / "a.onnx"))


def test_broken_policies_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="w2 has shape"):
        replace(random_policy(), table=SET_POINTS)
    with pytest.raises(TrainingError, match="w2 has shape"):
        replace(random_policy(), w2=np.zeros((3, 64), dtype=np.float32))
    with pytest.raises(TrainingError, match="log scale of a feature is negative"):
        replace(random_policy(), fine=-LOG_SCALES[: BASIC.size])
    with pytest.raises(TrainingError, match="scale of a feature is not above 0"):
        replace(random_policy(), scale=np.zeros(BASIC.size, dtype=np.float32))
    with pytest.raises(TrainingError, match="not finite"):
        replace(random_policy(), b2=np.full(sum(ACTION_SIZES), np.nan, dtype=np.float32))
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ExportError, match="could not be written"):
        export_policy(random_policy(), blocked / "policy.onnx")


Scores = dict[str, tuple[float, float]]


def facts_of(policy: Scores, partition: Scores, *, missed: float = 0.0) -> dict[str, Any]:
    """Of an evaluation with these scores and lower bounds."""

    def outcomes(scores: Scores) -> dict[str, dict[str, float]]:
        return {
            name: outcome(score=score, score_low=low, window_violated=missed)
            for name, (score, low) in scores.items()
        }

    return {
        "twins": {"redis-mix": {}, "redis-sort": {}},
        "evaluation": {"ppo": outcomes(policy), "partition": outcomes(partition)},
        "allowed": {
            name: {"window_violated": 0.02, "excess": 0.1, "slow": 0.1} for name in policy
        },
    }


PARTITION: Scores = {"redis-mix": (0.5, 0.48), "redis-sort": (0.4, 0.38), "nginx-hogs": (0.7, 0.6)}
BETTER: Scores = PARTITION | {"redis-mix": (0.6, 0.51)}
WORSE: Scores = PARTITION | {"redis-sort": (0.37, 0.36)}
UNCLEAR: Scores = PARTITION | {"nginx-hogs": (0.75, 0.69)}


def test_twins_that_were_not_trained_on_come_first_with_a_verdict_on_each() -> None:
    compared = standings(facts_of(BETTER | {"redis-sort": (0.37, 0.36)}, PARTITION))
    rows = standing_rows(compared)
    assert [(row[0], row[-1]) for row in rows] == [
        ("nginx-hogs", "not certain"),
        ("redis-mix", "better"),
        ("redis-sort", "worse"),
    ]
    assert {len(row) for row in rows} == {len(standing_headers(compared))}
    assert rows[1][1:5] == ("0.600", "0.510", "0.500", "0.480")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (BETTER, "Try it live beside applications like those of `redis-mix`."),
        (BETTER | {"redis-sort": (0.3, 0.2)}, "Keep `partition` beside those of `redis-sort`."),
        (WORSE, "Keep `partition`: these twins show nothing that the policy does better."),
        (UNCLEAR, "Keep `partition`: these twins show nothing that the policy does better."),
        (
            PARTITION,
            "Its scores are those of `partition`, as which it began: it has learned nothing.",
        ),
    ],
    ids=["better", "better and worse", "worse", "unclear", "the same"],
)
def test_what_a_policy_is_good_for_follows_from_the_verdicts(policy: Scores, said: str) -> None:
    assert good_for(facts_of(policy, PARTITION))[-1] == said


def test_missed_targets_and_a_missing_evaluation_are_said() -> None:
    assert "misses the target more often" in good_for(facts_of(BETTER, PARTITION, missed=0.03))[-1]
    (only,) = good_for({"twins": {}})
    assert "not evaluated beside `partition`" in only


def test_export_says_what_the_file_is_good_for_and_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = tmp_path / "run", tmp_path / "policy.onnx"
    run.mkdir()
    save_policy(run, slot_policy(provenance=facts_of(BETTER, PARTITION)), Args())
    assert main(["export", str(run), "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{out}  {out.with_suffix('.md')}"
    assert "`partition`: 1; worse: 0; not certain: 2. Not trained on: 1 of these." in lines[1]
    assert lines[1:3] == good_for(facts_of(BETTER, PARTITION))
    assert lines[3].endswith(f"--arms none,partition,onnx:path={out}")
    assert lines[1] in out.with_suffix(".md").read_text(), "the card says it as well"
