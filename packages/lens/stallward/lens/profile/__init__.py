"""Measures what an application needs, alone and with less and less memory."""
