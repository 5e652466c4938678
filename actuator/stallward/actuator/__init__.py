"""The actuator: reads one node, decides, and moves its levers."""
