"""Switchback experiments with two controllers on the node that serves."""
