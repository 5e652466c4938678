"""cgroup.events of a v2 group: whether it is really frozen.

cgroup.freeze only says what was asked; freezing takes its time.
"""

from __future__ import annotations

from pathlib import Path

from stallward.actuator.errors import SensorError
from stallward.actuator.sensors.files.flat import count_of, parse_flat


def parse_frozen(content: bytes, path: Path) -> bool | None:
    """Whether every process of the group is frozen; ``None`` before kernel 5.2.

    Raises:
        SensorError: If it is malformed or cut short.
    """
    value = count_of(parse_flat(content, path), b"frozen", path)
    if value not in {None, 0, 1}:
        raise SensorError(path, f"frozen is {value}, neither 0 nor 1")
    return None if value is None else bool(value)
