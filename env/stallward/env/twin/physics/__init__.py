"""What happens in one tick of one node, compiled."""
