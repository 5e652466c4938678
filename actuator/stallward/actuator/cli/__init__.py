"""The commands that run on a node; they need none of the packages for training."""
