"""Rolling a policy out to many nodes in waves: what to do next, and whether a wave is bad."""
