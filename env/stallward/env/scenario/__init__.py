"""Scenarios: their types, the reader of their files, and the shipped files."""
