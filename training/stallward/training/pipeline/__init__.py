"""The steps from recordings to a policy file, as the commands call them."""
