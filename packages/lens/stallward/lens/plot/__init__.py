"""Traces of memory after they were made: Parquet, and pictures."""
