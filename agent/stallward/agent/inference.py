"""ONNX Runtime, without what it does beside inference."""

from __future__ import annotations

import os
from typing import Any


def import_runtime() -> Any:
    """Import ONNX Runtime with its telemetry off.

    From 1.29 on, importing it starts threads that keep a database in the user's home and send
    to its maker what runs. Neither belongs on a node, least of all into the loop. Only this
    variable, set before the import, prevents it: the function to turn it off comes too late.

    Raises:
        ImportError: If it is not installed.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # noqa: PLC0415 - 30 MiB that only few need

    return onnxruntime
