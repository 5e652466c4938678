"""Pods as targets: their cgroups, the selectors that name them, and how they are found."""
