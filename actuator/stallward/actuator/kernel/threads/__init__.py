"""What the kernel knows and sets of single threads."""
