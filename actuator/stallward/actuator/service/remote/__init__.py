"""The service for other machines: its TCP port, and what each client may do there."""
