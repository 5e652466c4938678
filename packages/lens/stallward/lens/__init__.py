"""The memory lens: what memory does, shown to a person. Nothing of the core imports it."""
