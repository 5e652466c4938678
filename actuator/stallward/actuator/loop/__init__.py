"""The loop process: reads, decides, applies, records, sleeps."""
