"""Desired states for people: in words, and whether they changed enough to be told."""
