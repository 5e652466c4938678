"""``stallward top``: what a daemon does now, or did in a recording, on one screen."""
