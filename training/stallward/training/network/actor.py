"""The actor in PyTorch, and the conversion between stable-baselines3 and a policy's arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.distributions import MultiCategoricalDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, MlpExtractor
from torch import nn

from stallward.agent.action_table import ActionTable
from stallward.agent.desired import SLOTS
from stallward.agent.observation.encoder import BASIC, FeatureSet
from stallward.training.errors import TrainingError
from stallward.training.network.arrays import CLIP, LOG_SCALES, TrainedPolicy, Weights

# ---------- The actor in training: one network that is shared by all slots.
# The number of a slot says nothing about its background group. A dense network does not know that:
# it learns a policy for each slot from the programs that it happened to see there, and fails with an
# unknown program in that slot. Here all slots have the same weights. The inputs of a slot are the
# features of the node, its own features, and the mean over all slots (deep sets, Zaheer et al.,
# 2017).
#
# The exported network is the equivalent dense one (:func:`dense_weights`).

# ---------- All heads of the action table in one softmax, which halves the time of a PPO update
# stable-baselines3 makes one distribution object per head; nine small softmaxes over a few logits
# cost more than both networks. Here all heads are one tensor, padded to the widest head.

_NEVER: Final = -1e9
"""The logit of padding: a choice that a head does not have."""


class Heads(MultiCategoricalDistribution):
    """A distribution over actions that are independent choices, one for each head.

    Args:
        action_dims: The number of choices of each head.
        held_decisions: For how many samples in a row the random numbers of a head are kept, on
            average.
    """

    def __init__(self, action_dims: Sequence[int], held_decisions: float = 1.0) -> None:
        action_dims = [int(size) for size in action_dims]  # some versions of SB3 pass numpy's
        super().__init__(action_dims)
        width = max(action_dims)
        self._shape = (len(action_dims), width)
        starts = [sum(action_dims[:k]) for k in range(len(action_dims))]
        columns = [
            [start + min(k, size - 1) for k in range(width)]
            for start, size in zip(starts, action_dims, strict=True)
        ]
        self._columns = torch.tensor(columns).flatten()
        self._missing = torch.tensor([[k >= size for k in range(width)] for size in action_dims])
        self._log = torch.zeros(0)
        self._counts = torch.ones(1, len(action_dims))
        self._redrawn = 1.0 / held_decisions
        self._noise = torch.zeros(0)

    def proba_distribution(self, action_logits: torch.Tensor) -> Self:
        """Set the logits ``(N, sum(action_dims))``, one head after the other."""
        counts = torch.ones(1, self._shape[0], device=action_logits.device)
        return self.set(action_logits, counts)

    def set(self, action_logits: torch.Tensor, counts: torch.Tensor) -> Self:
        """Set the logits, and which heads count.

        Args:
            action_logits: The logits, ``(N, sum(action_dims))``, one head after the other.
            counts: 1 for heads whose choice has an effect, 0 for heads that are left out of
                probabilities and entropies, ``(N, heads)``.
        """
        self._counts = counts
        device = action_logits.device  # PPO.load takes a GPU where there is one
        columns, missing = self._columns.to(device), self._missing.to(device)
        padded = action_logits.index_select(1, columns).reshape(-1, *self._shape)
        self._log = torch.log_softmax(padded.masked_fill(missing, _NEVER), dim=-1)
        return self

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """The log probability of actions ``(N, heads)``, ``(N,)``."""
        chosen = actions.long().reshape(-1, self._shape[0], 1)
        return (self._log.gather(-1, chosen)[..., 0] * self._counts).sum(dim=1)

    def entropy(self) -> torch.Tensor:
        """The entropy, summed over heads, ``(N,)``."""
        return -((self._log.exp() * self._log).sum(dim=2) * self._counts).sum(dim=1)

    def sample(self) -> torch.Tensor:
        """Draw actions, ``(N, heads)``, by the Gumbel-max trick.

        With noise that is kept, each action still has the probability that its logits say, and
        actions that follow one another are alike. What a set-point does shows only after some
        seconds, which noise that is new at every decision never lasts (correlated noise for PPO:
        Hollenstein et al., AAAI 2024).
        """
        noise = torch.empty_like(self._log).exponential_().log()
        if self._redrawn < 1.0 and self._noise.shape == noise.shape:
            redrawn = torch.rand(noise.shape[:2], device=noise.device) < self._redrawn
            noise = torch.where(redrawn[..., None], noise, self._noise)
        self._noise = noise
        return (self._log - noise).argmax(dim=-1)

    def mode(self) -> torch.Tensor:
        """The likeliest actions, ``(N, heads)``."""
        return self._log.argmax(dim=-1)


Array = NDArray[np.float32]

WIDTH: Final = 32
"""Units for each slot, and for the node, in each hidden layer."""


def _slot_columns(features: FeatureSet) -> list[list[int]]:
    """The columns of each slot, in the same order."""
    return [
        [i for i, name in enumerate(features.names) if name.startswith(f"slot{slot}_")]
        for slot in range(SLOTS)
    ]


def _node_columns(features: FeatureSet) -> list[int]:
    return [i for i, name in enumerate(features.names) if not name.startswith("slot")]


def _present(features: FeatureSet) -> int:
    """The place of the feature `present` among those of a slot."""
    return _slot_columns(features)[0].index(features.names.index("slot0_present"))


def pooled_over_slots(
    values: NDArray[np.float64], features: FeatureSet = BASIC
) -> NDArray[np.float64]:
    """Replace the value of each slot feature by its mean over slots; ``(features.size,)``."""
    pooled, columns = values.copy(), _slot_columns(features)
    pooled[columns] = values[columns].mean(axis=0)
    return pooled


class SlotLayers(nn.Module):
    """The hidden layers, from features to ``(N, (SLOTS + 1) * WIDTH + SLOTS)``.

    The outputs are the units of the slots, then the units of the node, then 1 or 0 for each slot
    that is present or absent.

    Args:
        features: What is read of an observation; what follows is not.
    """

    def __init__(self, features: FeatureSet = BASIC) -> None:
        super().__init__()
        self.features, self._present = features, _present(features)
        slot_columns, node_columns = _slot_columns(features), _node_columns(features)
        slot_features = len(slot_columns[0])
        self.register_buffer(
            "slot_columns", torch.tensor(slot_columns).flatten(), persistent=False
        )
        self.register_buffer("node_columns", torch.tensor(node_columns), persistent=False)
        self.node0 = nn.Linear(len(node_columns), 2 * WIDTH)
        self.mean0 = nn.Linear(slot_features, 2 * WIDTH, bias=False)
        self.slot0 = nn.Linear(slot_features, WIDTH, bias=False)
        self.node1 = nn.Linear(WIDTH, 2 * WIDTH)
        self.mean1 = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.slot1 = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """The last hidden layer."""
        count = len(features)
        slots = features.index_select(1, self.get_buffer("slot_columns")).reshape(count, SLOTS, -1)
        node = features.index_select(1, self.get_buffer("node_columns"))
        # Features are normalised, so a present slot is at or above the mean.
        present = (slots[:, :, self._present] >= 0.0).float()
        shared = self.node0(node) + self.mean0(slots.mean(dim=1))
        slots, node = _active(self.slot0(slots), shared)
        shared = self.node1(node) + self.mean1(slots.mean(dim=1))
        slots, node = _active(self.slot1(slots), shared)
        return torch.cat([slots.reshape(count, -1), node, present], dim=1)


def _active(slots: torch.Tensor, shared: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The units of the slots, to which the first half of ``shared`` is added, and of the node."""
    return torch.tanh(slots + shared[:, None, :WIDTH]), torch.tanh(shared[:, WIDTH:])


class SlotOutputs(nn.Module):
    """The output layer: ``(N, sum(table.sizes))`` logits, then which slots are present.

    Args:
        table: The action table of the heads.
    """

    def __init__(self, table: ActionTable) -> None:
        super().__init__()
        self.table = table
        self.slot = nn.Linear(WIDTH, sum(table.slot_sizes))
        self.node = nn.Linear(WIDTH, sum(table.node_sizes))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The logits of the slots, then of the node, then which slots are present."""
        slots = hidden[:, : SLOTS * WIDTH].reshape(-1, SLOTS, WIDTH)
        slot_logits = self.slot(slots).reshape(len(hidden), -1)
        node, present = hidden[:, SLOTS * WIDTH : -SLOTS], hidden[:, -SLOTS:]
        return torch.cat([slot_logits, self.node(node), present], dim=1)


class _SlotHeads(Heads):
    """Heads of which those of absent slots do not count."""

    def __init__(self, table: ActionTable, held_decisions: float) -> None:
        super().__init__(table.sizes, held_decisions)
        self._table = table

    def proba_distribution_net(self, latent_dim: int) -> nn.Module:
        """The layer before the distribution; its input is the output of :class:`SlotLayers`."""
        del latent_dim
        return SlotOutputs(self._table)

    def proba_distribution(self, action_logits: torch.Tensor) -> Self:
        """Set the distribution from the output of :class:`SlotOutputs`."""
        logits, present = action_logits[:, :-SLOTS], action_logits[:, -SLOTS:]
        node_heads = present.new_ones(len(present), len(self._table.node_sizes))
        each = len(self._table.slot_sizes)
        counts = torch.cat([present.repeat_interleave(each, dim=1), node_heads], dim=1)
        return self.set(logits, counts)


class _Extractor(MlpExtractor):
    """The actor shared by all slots, with the critic of stable-baselines3."""

    def __init__(
        self,
        inputs: int,
        critic: Sequence[int],
        activation: type[nn.Module],
        device: Any,
        features: FeatureSet,
    ) -> None:
        super().__init__(inputs, {"pi": [], "vf": list(critic)}, activation, device)
        self.policy_net = SlotLayers(features)  # type: ignore[assignment]
        self.latent_dim_pi = (SLOTS + 1) * WIDTH + SLOTS


class SlotPolicy(ActorCriticPolicy):
    """The actor-critic policy with a shared slot network; ``net_arch`` is for the critic only.

    Args:
        table: The action table of the heads.
        features: What the actor reads of an observation.
        held_decisions: For how many decisions in a row a head explores in the same direction, on
            average.
    """

    def __init__(
        self,
        *args: Any,
        table: ActionTable,
        features: FeatureSet = BASIC,
        held_decisions: float = 1.0,
        **kwargs: Any,
    ) -> None:
        self.table, self.features = table, features
        self._held_decisions = held_decisions
        super().__init__(*args, **kwargs)

    def _build_mlp_extractor(self) -> None:
        assert isinstance(self.net_arch, list)
        self.mlp_extractor = _Extractor(
            self.features_dim, self.net_arch, self.activation_fn, self.device, self.features
        )

    def _build(self, lr_schedule: Any) -> None:
        self.action_dist = _SlotHeads(self.table, self._held_decisions)
        super()._build(lr_schedule)


def dense_weights(layers: SlotLayers, outputs: SlotOutputs) -> dict[str, Array]:
    """The weights and biases of the equivalent dense network.

    Returns:
        The arrays ``w0 b0 w1 b1 w2 b2``; each ``w`` has shape ``(outputs, inputs)``.
    """
    units = [slice(slot * WIDTH, (slot + 1) * WIDTH) for slot in range(SLOTS + 1)]
    node = units[SLOTS]
    slot_columns, node_columns = _slot_columns(layers.features), _node_columns(layers.features)
    w0 = np.zeros(((SLOTS + 1) * WIDTH, layers.features.size), dtype=np.float32)
    w1 = np.zeros(((SLOTS + 1) * WIDTH, (SLOTS + 1) * WIDTH), dtype=np.float32)
    w2 = np.zeros((sum(outputs.table.sizes), (SLOTS + 1) * WIDTH), dtype=np.float32)
    slot_logits = sum(outputs.table.slot_sizes)
    for k, rows in enumerate(units):
        half = slice(0, WIDTH) if k < SLOTS else slice(WIDTH, None)
        w0[rows, node_columns] = _array(layers.node0.weight)[half]
        w1[rows, node] = _array(layers.node1.weight)[half]
        for j in range(SLOTS):
            w0[rows, slot_columns[j]] = _array(layers.mean0.weight)[half] / SLOTS
            w1[rows, units[j]] = _array(layers.mean1.weight)[half] / SLOTS
        if k < SLOTS:
            w0[rows, slot_columns[k]] += _array(layers.slot0.weight)
            w1[rows, rows] += _array(layers.slot1.weight)
            w2[k * slot_logits : (k + 1) * slot_logits, rows] = _array(outputs.slot.weight)
    w2[SLOTS * slot_logits :, node] = _array(outputs.node.weight)
    return {
        "w0": w0,
        "b0": _repeat_for_slots(_array(layers.node0.bias)),
        "w1": w1,
        "b1": _repeat_for_slots(_array(layers.node1.bias)),
        "w2": w2,
        "b2": np.concatenate(
            [np.tile(_array(outputs.slot.bias), SLOTS), _array(outputs.node.bias)]
        ),
    }


def shared_weights(policy: TrainedPolicy) -> dict[str, Array]:
    """The parameters of the actor of which a policy is the dense form (:func:`dense_weights`).

    Raises:
        TrainingError: If there is no actor with exactly this dense form.
    """
    layers, outputs = SlotLayers(policy.features), SlotOutputs(policy.table)
    own, other, node = slice(WIDTH), slice(WIDTH, 2 * WIDTH), slice(SLOTS * WIDTH, None)
    slot_columns, node_columns = _slot_columns(policy.features), _node_columns(policy.features)
    logits = sum(policy.table.slot_sizes)
    shared = slice(SLOTS * logits, None)
    w0, w1, w2 = policy.w0, policy.w1, policy.w2
    if w0.shape[0] != (SLOTS + 1) * WIDTH or w1.shape[0] != w0.shape[0]:
        raise TrainingError(
            f"The hidden layers have {w0.shape[0]} and {w1.shape[0]} units, and those of a "
            f"training {(SLOTS + 1) * WIDTH}."
        )
    of_layers = {
        "node0.weight": np.concatenate([w0[own, node_columns], w0[node, node_columns]]),
        "node0.bias": np.concatenate([policy.b0[own], policy.b0[node]]),
        "mean0.weight": SLOTS
        * np.concatenate([w0[own, slot_columns[1]], w0[node, slot_columns[0]]]),
        "slot0.weight": _without(w0[own, slot_columns[1]], w0[own, slot_columns[0]]),
        "node1.weight": np.concatenate([w1[own, node], w1[node, node]]),
        "node1.bias": np.concatenate([policy.b1[own], policy.b1[node]]),
        "mean1.weight": SLOTS * np.concatenate([w1[own, other], w1[node, own]]),
        "slot1.weight": _without(w1[own, other], w1[own, own]),
    }
    of_outputs = {
        "slot.weight": w2[:logits, own],
        "slot.bias": policy.b2[:logits],
        "node.weight": w2[shared, node],
        "node.bias": policy.b2[shared],
    }
    for module, arrays in ((layers, of_layers), (outputs, of_outputs)):
        module.load_state_dict({name: torch.tensor(a) for name, a in arrays.items()})
    for name, array in dense_weights(layers, outputs).items():
        if not np.array_equal(array, getattr(policy, name)):
            raise TrainingError("The slots do not have the same weights.")
    return {
        **{f"mlp_extractor.policy_net.{name}": array for name, array in of_layers.items()},
        **{f"action_net.{name}": array for name, array in of_outputs.items()},
    }


def _without(part: Array, total: Array) -> Array:
    """What was added to ``part``, rounded, to give ``total``; one exists for weights that were."""
    exact = total - part
    added = exact
    for towards in (-np.inf, np.inf):
        nearby = np.nextafter(exact, np.float32(towards))
        added = np.where(part + added == total, added, nearby)
    return added


def _repeat_for_slots(shared: Array) -> Array:
    """Repeat the first half, shared by the slots, for every slot, and append the node's half."""
    return np.concatenate([np.tile(shared[:WIDTH], SLOTS), shared[WIDTH:]])


def _array(values: torch.Tensor) -> Array:
    return values.detach().cpu().numpy().astype(np.float32).copy()


HIDDEN = (64, 64)
"""Units of the critic's hidden layers; the actor (:class:`SlotLayers`) has as many layers."""


class NormalisedObservations(BaseFeaturesExtractor):
    """Takes logarithms and normalises observations as :class:`TrainedPolicy` does.

    Args:
        observation_space: The space of raw observations.
        fine: The log scale of each feature.
        mean: The mean of each feature, measured before training.
        scale: The scale of each feature, measured before training.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space[Any],
        fine: Weights,
        mean: Weights,
        scale: Weights,
    ) -> None:
        super().__init__(observation_space, features_dim=len(mean))
        self.register_buffer("fine", torch.tensor(fine))
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("scale", torch.tensor(scale))
        columns = torch.as_tensor(np.flatnonzero(fine))
        self.register_buffer("columns", columns, persistent=False)
        self.register_buffer("factors", torch.tensor(fine)[columns], persistent=False)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """The inputs of the first layer: features, normalised and clipped."""
        columns, factors = self.get_buffer("columns"), self.get_buffer("factors")
        linear = torch.clamp(observations.index_select(1, columns), min=0.0)
        logarithms = torch.log(1.0 + factors * linear) / torch.log(1.0 + factors)
        features = observations.index_copy(1, columns, logarithms)
        mean, scale = self.get_buffer("mean"), self.get_buffer("scale")
        return torch.clamp((features - mean) / scale, -CLIP, CLIP)


def policy_kwargs(mean: Weights, scale: Weights, *, critic_features: int = 0) -> dict[str, Any]:
    """The ``policy_kwargs`` of a :class:`~stallward.training.network.actor.SlotPolicy`.

    Args:
        mean: The mean of each feature that the actor reads.
        scale: The scale of each feature, the same shape.
        critic_features: The number of features after the observation that only the critic reads,
            without normalisation.
    """
    unchanged = np.zeros(critic_features, dtype=np.float32)
    return {
        "net_arch": list(HIDDEN),
        "features_extractor_class": NormalisedObservations,
        "features_extractor_kwargs": {
            "fine": np.concatenate([LOG_SCALES[: len(mean)], unchanged]),
            "mean": np.concatenate([mean, unchanged]),
            "scale": np.concatenate([scale, unchanged + 1.0]),
        },
    }


def actor_arrays(policy: ActorCriticPolicy) -> dict[str, Any]:
    """The weights of a trained ``SlotPolicy``, by the fields of :class:`TrainedPolicy`."""
    state: Mapping[str, torch.Tensor] = policy.state_dict()

    layers, outputs = policy.mlp_extractor.policy_net, policy.action_net
    assert isinstance(layers, SlotLayers)
    assert isinstance(outputs, SlotOutputs)
    inputs = layers.features.size
    parameters = {name: _array(value) for name, value in policy.named_parameters()}
    # What only the critic reads exists in a training and for its twins alone.
    parameters[_CRITIC_INPUTS] = parameters[_CRITIC_INPUTS][:, :inputs]
    return {
        **{
            name: _array(state[f"features_extractor.{name}"])[:inputs]
            for name in ("fine", "mean", "scale")
        },
        **dense_weights(layers, outputs),
        "parameters": parameters,
    }


_CRITIC_INPUTS: Final = "mlp_extractor.value_net.0.weight"


def set_parameters(policy: ActorCriticPolicy, parameters: Mapping[str, Weights]) -> None:
    """Give a policy the parameters of another one with the same actor.

    Args:
        policy: The policy. What only its critic reads has no weight then, and what ``parameters``
            does not have stays as it is.
        parameters: Those of :class:`TrainedPolicy`.
    """
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if name not in parameters:
                continue
            given = torch.tensor(parameters[name])  # those of another process are read-only
            parameter.zero_()
            parameter[..., : given.shape[-1]] = given
