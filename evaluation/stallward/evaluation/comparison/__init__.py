"""One comparison from request to table, and the hindsight oracle."""
