"""stallward.evaluation."""
