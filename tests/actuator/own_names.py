"""Names of groups and folders that only one test uses.

What the teardown of a test could not remove does not stand in the way of the next.
"""

from __future__ import annotations

import itertools
import os

_numbers = itertools.count(1)


def own_name() -> str:
    """A name that no other test has, in this process or another one."""
    return f"stallward-test-{os.getpid()}-{next(_numbers)}"
