"""Candidates judged by recordings of a randomised arm."""
