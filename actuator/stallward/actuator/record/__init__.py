"""The record of a tick: its values, its form on the wire, and its file."""
