"""The environments as Gymnasium and stable-baselines3 see them."""
