"""The settings of trainings that take a few seconds."""

from __future__ import annotations

from dataclasses import replace

from stallward.training.ppo.args import Args
from stallward.training.synthetic_scenarios import SyntheticScenarioSettings

BRIEF = Args(
    composing=SyntheticScenarioSettings(per_twin=0),
    total_steps=2048,
    n_envs=64,
    n_steps=16,
    batch_size=256,
    evaluation_episodes=8,
)
TWO_SEEDS = replace(BRIEF, seeds=2)
