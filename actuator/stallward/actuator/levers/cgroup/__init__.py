"""Levers that are files of a cgroup or of the node."""
