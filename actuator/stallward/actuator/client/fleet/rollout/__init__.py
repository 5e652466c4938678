"""Rolling a policy out to a fleet: the calls to its nodes, and the file of events."""
