"""Experiments on nodes that serve: how many blocks they need, and what they showed."""
