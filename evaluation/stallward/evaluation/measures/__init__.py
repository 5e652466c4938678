"""Measures of blocks, and estimates with intervals from them."""
