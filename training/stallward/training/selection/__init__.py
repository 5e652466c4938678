"""Evaluation of policies and settings on the twin, and the choice between them."""
