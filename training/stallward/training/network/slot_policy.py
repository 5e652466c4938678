"""The actor in training: one network for all slots, which sees each and what is around it.

Nothing about a background group follows from the number of its slot. A dense network does not know
that: it learns a policy for every slot, from the programs that it happened to meet there, and
beside an unknown program in that slot does nothing of use. Here the weights of all slots are the
same, and what a slot is told of the others is their mean (deep sets, Zaheer et al., 2017).

What is exported is the dense network that does the same (:func:`dense`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.distributions import MultiCategoricalDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import MlpExtractor
from torch import nn

from stallward.agent.desired import ACTION_SIZES, SLOTS
from stallward.agent.observation.encoder import OBSERVATION_NAMES, OBSERVATION_SIZE
from stallward.training.network.softmax_heads import Heads

Array = NDArray[np.float32]

WIDTH: Final = 32
"""Units of each slot, and of the node, in each hidden layer."""
_OF_SLOTS: Final = [
    [i for i, name in enumerate(OBSERVATION_NAMES) if name.startswith(f"slot{slot}_")]
    for slot in range(SLOTS)
]
_OF_NODE: Final = [i for i, name in enumerate(OBSERVATION_NAMES) if not name.startswith("slot")]
_PRESENT: Final = [n.split("_", 1)[1] for n in OBSERVATION_NAMES if n.startswith("slot0_")].index(
    "present"
)
_SLOT_LOGITS: Final = sum(ACTION_SIZES[:2])
_NODE_LOGITS: Final = sum(ACTION_SIZES[2 * SLOTS :])


def pooled_over_slots(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean over slots of what is known of each feature, ``(OBSERVATION_SIZE,)``, for each."""
    found = values.copy()
    found[_OF_SLOTS] = values[_OF_SLOTS].mean(axis=0)
    return found


class SlotLayers(nn.Module):
    """The hidden layers: from features to ``(N, (SLOTS + 1) * WIDTH + SLOTS)``.

    Of features only the first ``OBSERVATION_SIZE`` count. The units of the slots come first, then
    those of the node, then whether each slot is there.
    """

    def __init__(self) -> None:
        super().__init__()
        slot_features = len(_OF_SLOTS[0])
        self.register_buffer("of_slots", torch.tensor(_OF_SLOTS).flatten(), persistent=False)
        self.register_buffer("of_node", torch.tensor(_OF_NODE), persistent=False)
        self.node0 = nn.Linear(len(_OF_NODE), 2 * WIDTH)
        self.mean0 = nn.Linear(slot_features, 2 * WIDTH, bias=False)
        self.slot0 = nn.Linear(slot_features, WIDTH, bias=False)
        self.node1 = nn.Linear(WIDTH, 2 * WIDTH)
        self.mean1 = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.slot1 = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """The last hidden layer."""
        count = len(features)
        slots = features.index_select(1, self.get_buffer("of_slots")).reshape(count, SLOTS, -1)
        node = features.index_select(1, self.get_buffer("of_node"))
        # Features are normalised: what is there is at least the mean.
        there = (slots[:, :, _PRESENT] >= 0.0).float()
        shared = self.node0(node) + self.mean0(slots.mean(dim=1))
        slots, node = _active(self.slot0(slots), shared)
        shared = self.node1(node) + self.mean1(slots.mean(dim=1))
        slots, node = _active(self.slot1(slots), shared)
        return torch.cat([slots.reshape(count, -1), node, there], dim=1)


def _active(slots: torch.Tensor, shared: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Units of the slots, to which the first half of what is shared is added, and of the node."""
    return torch.tanh(slots + shared[:, None, :WIDTH]), torch.tanh(shared[:, WIDTH:])


class SlotOutputs(nn.Module):
    """Logits ``(N, sum(ACTION_SIZES))`` from the last hidden layer, then which slots are there."""

    def __init__(self) -> None:
        super().__init__()
        self.slot = nn.Linear(WIDTH, _SLOT_LOGITS)
        self.node = nn.Linear(WIDTH, _NODE_LOGITS)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of the slots, then of the node, then what is passed on."""
        slots = hidden[:, : SLOTS * WIDTH].reshape(-1, SLOTS, WIDTH)
        of_slots = self.slot(slots).reshape(len(hidden), -1)
        node, there = hidden[:, SLOTS * WIDTH : -SLOTS], hidden[:, -SLOTS:]
        return torch.cat([of_slots, self.node(node), there], dim=1)


class _SlotHeads(Heads):
    """Heads of which those of slots that are not there do not count."""

    def proba_distribution_net(self, latent_dim: int) -> nn.Module:
        """The layer before the distribution; it takes what :class:`SlotLayers` gives."""
        del latent_dim
        return SlotOutputs()

    def proba_distribution(self, action_logits: torch.Tensor) -> Self:
        """Of what :class:`SlotOutputs` gives."""
        logits, there = action_logits[:, :-SLOTS], action_logits[:, -SLOTS:]
        of_node = torch.ones(len(there), len(ACTION_SIZES) - 2 * SLOTS)
        return self.set(logits, torch.cat([there.repeat_interleave(2, dim=1), of_node], dim=1))


class _Extractor(MlpExtractor):
    """An actor for all slots, beside the library's critic."""

    def __init__(
        self, features: int, critic: Sequence[int], activation: type[nn.Module], device: Any
    ) -> None:
        super().__init__(features, {"pi": [], "vf": list(critic)}, activation, device)
        self.policy_net = SlotLayers()  # type: ignore[assignment]
        self.latent_dim_pi = (SLOTS + 1) * WIDTH + SLOTS


class SlotPolicy(ActorCriticPolicy):
    """stable-baselines3's policy with one network for all slots; ``net_arch`` is the critic's."""

    def _build_mlp_extractor(self) -> None:
        assert isinstance(self.net_arch, list)
        self.mlp_extractor = _Extractor(
            self.features_dim, self.net_arch, self.activation_fn, self.device
        )

    def _build(self, lr_schedule: Any) -> None:
        assert isinstance(self.action_dist, MultiCategoricalDistribution)
        self.action_dist = _SlotHeads(self.action_dist.action_dims)
        super()._build(lr_schedule)


def dense(layers: SlotLayers, outputs: SlotOutputs) -> dict[str, Array]:
    """The weights and biases of the dense network that does the same.

    Returns:
        ``w0 b0 w1 b1 w2 b2``; ``w`` has the shape ``(outputs, inputs)``.
    """
    units = [slice(slot * WIDTH, (slot + 1) * WIDTH) for slot in range(SLOTS + 1)]
    node = units[SLOTS]
    w0 = np.zeros(((SLOTS + 1) * WIDTH, OBSERVATION_SIZE), dtype=np.float32)
    w1 = np.zeros(((SLOTS + 1) * WIDTH, (SLOTS + 1) * WIDTH), dtype=np.float32)
    w2 = np.zeros((sum(ACTION_SIZES), (SLOTS + 1) * WIDTH), dtype=np.float32)
    for k, rows in enumerate(units):
        half = slice(0, WIDTH) if k < SLOTS else slice(WIDTH, None)
        w0[rows, _OF_NODE] = _array(layers.node0.weight)[half]
        w1[rows, node] = _array(layers.node1.weight)[half]
        for j in range(SLOTS):
            w0[rows, _OF_SLOTS[j]] = _array(layers.mean0.weight)[half] / SLOTS
            w1[rows, units[j]] = _array(layers.mean1.weight)[half] / SLOTS
        if k < SLOTS:
            w0[rows, _OF_SLOTS[k]] += _array(layers.slot0.weight)
            w1[rows, rows] += _array(layers.slot1.weight)
            w2[k * _SLOT_LOGITS : (k + 1) * _SLOT_LOGITS, rows] = _array(outputs.slot.weight)
    w2[SLOTS * _SLOT_LOGITS :, node] = _array(outputs.node.weight)
    return {
        "w0": w0,
        "b0": _of_all(_array(layers.node0.bias)),
        "w1": w1,
        "b1": _of_all(_array(layers.node1.bias)),
        "w2": w2,
        "b2": np.concatenate(
            [np.tile(_array(outputs.slot.bias), SLOTS), _array(outputs.node.bias)]
        ),
    }


def _of_all(shared: Array) -> Array:
    """Of the units of all slots and of the node, what is shared by the slots and the node's."""
    return np.concatenate([np.tile(shared[:WIDTH], SLOTS), shared[WIDTH:]])


def _array(values: torch.Tensor) -> Array:
    return values.detach().cpu().numpy().astype(np.float32).copy()
