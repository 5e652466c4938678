"""stallward.models."""
