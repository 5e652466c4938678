"""Which of its pages a running program holds and touches, over time."""
