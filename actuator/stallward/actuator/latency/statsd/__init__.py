"""Latencies from StatsD timings that arrive as datagrams."""
