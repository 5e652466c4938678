"""Search of a rule's thresholds."""
