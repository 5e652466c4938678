"""What `stallward workingset` found: figures, files and pictures."""
