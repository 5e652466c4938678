"""``python -m scripted_service OPTIONS``: in the place of the service; it waits to be ended."""

from __future__ import annotations

import signal

if __name__ == "__main__":
    signal.pause()
