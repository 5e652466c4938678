"""Benchmarks of the daemon's cost and speed, and of the environment's speed."""
