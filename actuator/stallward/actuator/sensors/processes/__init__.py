"""The memory and usage of processes, read in turn."""
