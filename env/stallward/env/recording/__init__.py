"""Recordings of runs, and the split that says which of them may be learned from."""
