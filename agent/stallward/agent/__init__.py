"""What decides: samples, observations, desired states, and the controllers that map them."""
