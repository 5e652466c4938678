"""Rolling a policy out to a fleet: the plan, the judgement of waves, the calls, the file of events."""
