"""What a scenario is, and the shipped ones."""
