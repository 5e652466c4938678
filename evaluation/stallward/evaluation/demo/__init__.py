"""The demo: the whole way from recordings to a comparison, in a fixed time."""
