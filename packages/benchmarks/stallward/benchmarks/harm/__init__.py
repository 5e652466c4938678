"""``stallward bench harm``: whether background work fails because of the daemon."""
