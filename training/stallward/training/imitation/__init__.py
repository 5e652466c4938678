"""A privileged teacher, its demonstrations, and behaviour cloning before PPO."""
