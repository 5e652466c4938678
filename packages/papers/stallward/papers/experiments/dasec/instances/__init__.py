"""The source's own setting of DASEC: several latency-critical instances, and no batch work."""
