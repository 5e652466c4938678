"""Comparisons, from the request to the table, and the search for the oracle."""
