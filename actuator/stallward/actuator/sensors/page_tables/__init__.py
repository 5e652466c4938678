"""The pages of one process: which are in memory, in swap, reserved only, and referenced."""
