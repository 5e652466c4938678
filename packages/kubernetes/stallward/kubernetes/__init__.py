"""Pods of a node as targets: which there are, and where. Nothing of the core imports it."""
