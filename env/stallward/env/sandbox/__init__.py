"""The sandbox, in which real pressure is safe, and the live blocks that run in it."""
