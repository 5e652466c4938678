"""Levers that act on processes and threads one by one."""
