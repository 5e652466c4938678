"""The physics of one node in one tick, as compiled model functions."""
