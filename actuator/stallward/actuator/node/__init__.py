"""One node as configured: its sensors and levers put together."""
