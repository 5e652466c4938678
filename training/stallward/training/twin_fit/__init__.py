"""Fitting the twin to recordings, and how far it is off."""
