"""What this machine can do and what it cannot; changes nothing."""
