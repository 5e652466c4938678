"""Tells a memory setting that the kernel has rounded from another one.

The kernel keeps memory limits in whole pages, so a file seldom reads as it was written.
"""

from __future__ import annotations

from typing import Final

LARGEST_PAGE_BYTES: Final = 65536
"""The largest page size in use."""


def is_rounded(found: str, asked_bytes: int) -> bool:
    """Whether ``found``, the text of a file, is what the kernel makes of ``asked_bytes``."""
    return found.isdigit() and abs(int(found) - asked_bytes) < LARGEST_PAGE_BYTES
