"""The guard: the deterministic layer between every controller and the kernel."""
