"""The training recipe."""
