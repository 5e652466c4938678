"""What others have published: the founding documents with their experiments, and other rules."""
