"""From blocks to estimates with intervals."""
