"""Searches of training recipes by Ray Tune."""
