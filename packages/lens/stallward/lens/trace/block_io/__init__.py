"""Block I/O: per disk from diskstats, and per process by eBPF."""
