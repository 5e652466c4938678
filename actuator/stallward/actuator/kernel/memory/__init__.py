"""Memory: limits that can be interrupted, processes that wait under them, and PSI files."""
