"""Experiments of published documents, repeated at the scale of this machine, beside their own."""
