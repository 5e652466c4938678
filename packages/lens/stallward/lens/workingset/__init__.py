"""The memory lens: what a trace of memory references says about a program, in one pass."""
