"""Reports of comparisons: tables, charts and pages."""
