"""Off-policy evaluation: candidates judged by recordings of a randomised arm."""
