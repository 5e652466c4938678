"""stallward.training."""
