"""How far the twin is off from live runs that no fit has seen."""
