"""What must be undone, on disk and by whom."""
