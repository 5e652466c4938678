"""The examination of a machine: what the daemon could do on it. It changes nothing."""
