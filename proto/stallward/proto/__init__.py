"""Wire messages and service stubs."""
