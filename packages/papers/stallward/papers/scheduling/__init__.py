"""Scheduling an application's own threads: critical path, interference and the answers to it."""
