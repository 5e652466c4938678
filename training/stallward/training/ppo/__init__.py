"""The training recipe: PPO with its settings, callback and provenance."""
