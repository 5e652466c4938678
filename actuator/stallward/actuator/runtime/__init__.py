"""What any process of the daemon does for itself: locks, addresses, memory, folders."""
