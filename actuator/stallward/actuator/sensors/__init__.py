"""Sensors: every signal of a tick, read from the kernel's files without ever blocking."""
