"""What one tick leaves behind: as values, on the wire, on disk."""
