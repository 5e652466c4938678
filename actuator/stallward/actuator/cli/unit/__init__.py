"""The unit under which systemd runs the daemon, and putting it in place."""
