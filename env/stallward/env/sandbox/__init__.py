"""Real pressure, safely: groups with a limit of their own, and live blocks inside."""
