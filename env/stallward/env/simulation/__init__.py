"""Simulations: many twin nodes behind the guard, stepped by actions, and their constraints."""
