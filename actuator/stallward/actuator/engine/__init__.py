"""Deciding, pure: check the sample, observe, ask, fall back, guard."""
