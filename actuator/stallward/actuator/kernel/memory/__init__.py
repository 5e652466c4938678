"""Memory limits: writes of them that can be interrupted, and processes that wait under them."""
