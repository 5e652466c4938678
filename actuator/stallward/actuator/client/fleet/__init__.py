"""Many daemons and one client."""
