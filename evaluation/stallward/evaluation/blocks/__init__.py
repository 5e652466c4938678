"""Blocks: planned, run live or on the twin, stored, run again when spoiled."""
