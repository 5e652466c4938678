"""What can be traced, one file each."""
