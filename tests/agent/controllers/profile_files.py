"""Profiles for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

MIB = 1 << 20


def profile_file(
    path: Path,
    *,
    application: str = "application",
    working_set_mib: int = 100,
    least_mib: int = 20,
    more: Mapping[str, object] | None = None,
) -> Path:
    """Write a profile without runs, and return its path."""
    content = {
        "kind": "stallward-profile",
        "schema": 1,
        "application": application,
        "source": "invented",
        "measured_at": "2026-01-02T03:04:05+00:00",
        "node": "a node",
        "tolerance": 1.15,
        "target_ms": None,
        "work": "request",
        "working_set_bytes": working_set_mib * MIB,
        "least_bytes": least_mib * MIB,
        "alone_peak_bytes": 2 * working_set_mib * MIB,
        "anonymous_bytes": 0,
        "file_bytes": working_set_mib * MIB,
        "threads": 1,
        "alone_s": 0.01,
        "fault_cost_us": None,
        "knee": None,
        "demand": [],
        "touched": [],
        "runs": [],
        **(more or {}),
    }
    path.write_text(json.dumps(content))
    return path
