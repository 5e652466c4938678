"""stallward.actuator."""
