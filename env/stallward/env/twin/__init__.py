"""The twin: a mechanistic model of a node under memory pressure, vectorised over nodes."""
