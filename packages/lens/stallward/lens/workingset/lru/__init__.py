"""LRU for every size of memory at once."""
