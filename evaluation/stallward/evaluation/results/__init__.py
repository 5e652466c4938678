"""What comparisons come to, as values, and the JSON files that hold such values."""
