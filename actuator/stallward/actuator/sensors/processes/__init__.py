"""What processes hold and use, read in turn."""
