"""``python -m scripted_service OPTIONS``: stands in for the service and waits for its end."""

from __future__ import annotations

import signal

if __name__ == "__main__":
    signal.pause()
