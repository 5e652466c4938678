"""Searching the thresholds of a rule."""
