"""Registers the environments with Gymnasium."""

from __future__ import annotations

from typing import Final

import gymnasium

IDS: Final = {
    "stallward/Twin-v0": "stallward.env.gym.twin_env:TwinEnv",
    "stallward/TwinContinuous-v0": "stallward.env.gym.twin_env:TwinEnv",
    "stallward/TwinDiscrete-v0": "stallward.env.gym.discrete_env:discrete_twin",
    "stallward/Node-v0": "stallward.env.gym.node_env:NodeEnv",
    "stallward/Replay-v0": "stallward.research.off_policy.replay_env:ReplayEnv",
}
_VECTORS: Final = {
    "stallward/Twin-v0": "stallward.env.gym.vector_env:TwinVectorEnv",
    "stallward/TwinContinuous-v0": "stallward.env.gym.vector_env:TwinVectorEnv",
    "stallward/TwinDiscrete-v0": "stallward.env.gym.discrete_env:discrete_twins",
}
"""The environments that exist for many nodes at once, for ``gymnasium.make_vec``."""
_KEYWORDS: Final = {"stallward/TwinContinuous-v0": {"continuous": True}}
_LIVE: Final = "stallward/Node"


def register() -> None:
    """Register the environments that are not registered yet."""
    for name, entry_point in IDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(
                id=name,
                entry_point=entry_point,
                vector_entry_point=_VECTORS.get(name),
                kwargs=_KEYWORDS.get(name, {}),
                nondeterministic=name.startswith(_LIVE),
            )
