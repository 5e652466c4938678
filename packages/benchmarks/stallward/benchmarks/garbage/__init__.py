"""``stallward bench garbage``: broken calls by the thousand, and what a daemon does then."""
