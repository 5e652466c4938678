"""The memory lens: what the memory of a node and of its processes does, read over time."""
