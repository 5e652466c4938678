"""The commands that talk to many daemons at once."""
