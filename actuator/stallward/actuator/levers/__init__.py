"""Levers: everything that a granted desired state changes in the kernel."""
