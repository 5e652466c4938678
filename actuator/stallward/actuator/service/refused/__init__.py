"""Refused calls: counting and logging them, and refusing what no servicer can answer."""
