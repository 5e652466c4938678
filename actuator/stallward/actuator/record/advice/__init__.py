"""What a policy in advice mode would do: as values, in words, and on the wire."""
