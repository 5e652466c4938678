"""The journal of changes to undo: its entries, its file, its keeper, and restoring from it."""
