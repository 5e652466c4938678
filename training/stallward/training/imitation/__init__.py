"""A privileged teacher and what the actor learns from it before PPO."""
