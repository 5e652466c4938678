"""``stallward bench fleet``: one client and hundreds of simulated nodes."""
