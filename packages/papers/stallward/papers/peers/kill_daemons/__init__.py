"""Daemons that end programs when memory runs low or stalls."""
