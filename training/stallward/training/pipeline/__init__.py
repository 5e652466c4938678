"""From recordings to a policy file: the steps as commands use them."""
