"""Blocks: they are planned, run live or on the twin, stored, and run again if invalid."""
