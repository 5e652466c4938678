"""How long steps say where they are: a callback, so that nothing below prints."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done, 0..1."""


def silent(_message: str, _share: float) -> None:
    """Report to nobody."""


def part(report: Report, start: float, end: float) -> Report:
    """A report of a step that is the part ``start..end`` of a longer one."""

    def inner(message: str, share: float) -> None:
        report(message, start + (end - start) * min(max(share, 0.0), 1.0))

    return inner
