"""The fidelity of the twin: its error against live runs that no fit has seen."""
