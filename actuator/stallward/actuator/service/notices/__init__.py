"""Telling people and programs what is done to the background: the journal, and a command."""
