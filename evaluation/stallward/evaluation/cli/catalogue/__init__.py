"""``stallward catalogue``, and the options of commands that read recordings."""
