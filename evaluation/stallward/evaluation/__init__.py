"""Evaluation: comparisons of controllers, the fidelity of twins, verdicts and benchmarks."""
