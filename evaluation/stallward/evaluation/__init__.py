"""Evaluation: comparisons of controllers, the fidelity of twins, and verdicts."""
