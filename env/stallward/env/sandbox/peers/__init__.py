"""Daemons of other people that run as themselves on a sandbox, and see nothing else."""
