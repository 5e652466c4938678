"""Policies and settings side by side on the twin, and which one is kept."""
