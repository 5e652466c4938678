"""``stallward assess``: would it help here? From what a daemon recorded without acting."""
