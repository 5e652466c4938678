"""The lever on file pages, which only the working-set heuristics use."""
