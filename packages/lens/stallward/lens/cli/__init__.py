"""Commands that show what memory does: the memory lens."""
