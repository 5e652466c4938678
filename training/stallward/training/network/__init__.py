"""The actor in PyTorch and as plain arrays."""
