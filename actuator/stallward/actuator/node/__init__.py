"""The node as configured: its targets, its sensors and its levers."""
