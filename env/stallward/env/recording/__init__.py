"""What one run left behind, and which recordings may be learned from."""
