"""Controllers that clients name instead of a policy: ``controller:NAME[:key=value,...]``. Pure.

So everything that can be done with a policy, a rule can do, too: it can be loaded, watched in
shadow mode, activated, rolled back, and compared in an experiment.
"""

from __future__ import annotations

import hashlib
from typing import Final

PREFIX: Final = "controller:"


def specification_of(name: str) -> str | None:
    """The specification of the controller that a client names; ``None`` if it names a policy."""
    return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None


def digest_of(specification: str) -> str:
    """What identifies it, in place of the digest of a file."""
    return hashlib.sha256(specification.encode()).hexdigest()
