"""Whether twins rank arms as live comparisons do."""
