"""The experiments of "Memory Contention Aware Swap Space Management" (NTUST 2019)."""
