"""The founding documents: their experiments, repeated on this machine."""
