"""The loop process, which runs the ticks: it reads, decides, applies and records."""
