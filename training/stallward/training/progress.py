"""How long steps say where they are: a callback, so that nothing below prints."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done, 0..1."""
