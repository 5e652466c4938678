"""Estimates what the twin of an application needs to know from recordings of it."""
