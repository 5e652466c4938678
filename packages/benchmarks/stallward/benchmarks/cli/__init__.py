"""`stallward bench`: what the project costs, counts and survives on this machine."""
