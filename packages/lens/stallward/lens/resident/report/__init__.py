"""What `stallward resident` saw: figures, files and pictures."""
