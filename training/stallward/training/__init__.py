"""Training: twins fitted to recordings, policies trained and rules tuned on them."""
