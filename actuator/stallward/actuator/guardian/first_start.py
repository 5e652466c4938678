"""What the user alone can correct, looked at before there is a daemon.

Later only the loop's own mistake ends it: the service and the recorder meet folders of other users,
who could keep the application from being protected by what they put there.
"""

from __future__ import annotations

import os

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.errors import DaemonError
from stallward.actuator.runtime.process_setup import group_id
from stallward.agent.believed_file import may_be_believed


def check_first_start(config: DaemonConfig) -> None:
    """Refuse a group that does not exist, and a folder for records that cannot be written.

    A folder that others can change is no mistake of the user's, whatever is wrong with it.

    Raises:
        DaemonError: If there is such a mistake.
    """
    for key in ("socket_group", "report_group"):
        if group := getattr(config.service, key):
            group_id(group, key)
    if config.record is None:
        return
    folder = config.record.dir
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not may_be_believed(there.stat()):
        return
    why = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or "it cannot be made"
    if why or not os.access(folder, os.W_OK | os.X_OK):
        raise DaemonError(
            f"The folder for records, {folder}, cannot be written ({why or 'no permission'}).",
            next_step="Correct [record] in the configuration, or let the daemon write there.",
        )
