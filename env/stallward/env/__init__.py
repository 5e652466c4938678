"""stallward.env."""
