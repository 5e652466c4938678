"""Latencies from lines that the application writes to a file or FIFO."""
