"""``stallward bench kills``: a daemon that is killed again and again."""
