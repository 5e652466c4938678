"""One parser for each kind of kernel file."""
