"""Policies that were sent to a node, by their digest."""
