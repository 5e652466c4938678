"""Whether a server is that of the cluster, by the authority that the cluster gives its pods."""

from __future__ import annotations

import ssl
from pathlib import Path

from stallward.agent.believed_file import MOST_PEM_BYTES, read_believed


def cluster_context(authority: Path) -> ssl.SSLContext:
    """Return how the certificate of a cluster's API server is checked.

    From 3.13 on, Python also asks for extensions that an authority may leave out, and that those
    of some clusters lack (Amazon EKS has no key identifiers). The chain, the dates and the name
    are checked with and without.

    Args:
        authority: The authority, as PEM.

    Raises:
        OSError: If it cannot be read or used.
        UnbelievedFileError: If others than root can have written it.
    """
    # Comments in other letters are left out. The newline keeps an empty file from meaning the
    # authorities of the system.
    pem = read_believed(authority, MOST_PEM_BYTES).decode("ascii", "ignore") + "\n"
    context = ssl.create_default_context(cadata=pem)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
