"""ONNX Runtime with its telemetry off."""

from __future__ import annotations

import os
from typing import Any


def import_runtime() -> Any:
    """Import ONNX Runtime with its telemetry off.

    From version 1.29 on, the import starts threads that keep a database in the user's home and
    report to the vendor what is run. Neither belongs on a node, least of all in the loop. Only
    this variable, set before the import, prevents it: the function that turns telemetry off takes
    effect too late.

    Raises:
        ImportError: If ONNX Runtime is not installed.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # noqa: PLC0415 - it takes 30 MiB, and only policies need it

    return onnxruntime
