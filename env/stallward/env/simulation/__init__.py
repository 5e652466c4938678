"""Many twin nodes stepped by actions, and what is allowed on them."""
