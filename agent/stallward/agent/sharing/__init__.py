"""Sharing a zone's memory: what the application needs, and what each group gets of the rest."""
