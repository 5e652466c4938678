"""``stallward trace`` and ``stallward plot``."""
