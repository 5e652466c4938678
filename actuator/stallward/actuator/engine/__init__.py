"""The engine decides without I/O: it checks, observes, asks, falls back and guards."""
