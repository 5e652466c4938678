"""The programs in C, and what compiles them."""
