"""Page-cache hits and misses by eBPF."""
