"""The compilations of the thesis on working sets: by memory size, under each of its heuristics."""
