"""The numbers of groups, by their names."""

from __future__ import annotations

import grp

from stallward.actuator.errors import DaemonError


def group_id(group: str, key: str) -> int:
    """Return the number of a group.

    Args:
        group: Its name or number.
        key: The key of the configuration that names it, for messages.

    Raises:
        DaemonError: If there is no such group.
    """
    if group.isascii() and group.isdigit():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, ValueError) as error:
        raise DaemonError(
            f"There is no group {group!r} on this machine.",
            next_step=f"Correct `{key}` in the configuration, or give the number.",
        ) from error
