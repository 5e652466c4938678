"""Controllers of other systems, rebuilt from what was published about them, one file each."""
