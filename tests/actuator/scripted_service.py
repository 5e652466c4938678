"""``python -m scripted_service OPTIONS``: stands in for the service and waits for its end.

Where ``MISTAKEN_SERVICE`` names a file it writes a line to that, and ends as for a user's mistake.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from stallward.actuator.ipc.channels import EXIT_USER

if __name__ == "__main__":
    if "MISTAKEN_SERVICE" in os.environ:
        with Path(os.environ["MISTAKEN_SERVICE"]).open("a") as starts:
            starts.write("started\n")
        sys.exit(EXIT_USER)
    signal.pause()
