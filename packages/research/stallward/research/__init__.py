"""What only researchers use. Nothing of the core imports it."""
