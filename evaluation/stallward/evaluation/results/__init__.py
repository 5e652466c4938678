"""The results of comparisons as values, and the JSON files that hold them."""
