"""stallward.agent."""
