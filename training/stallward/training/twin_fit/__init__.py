"""Fits the twin to recordings, and measures its sim-to-real gap."""
