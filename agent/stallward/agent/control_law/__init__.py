"""Rules written once over a batch: for one node and for thousands of twins."""
