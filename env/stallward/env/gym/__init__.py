"""The Gymnasium and stable-baselines3 faces of the environments."""
