"""What any process of ours does for itself, and how one is started."""
