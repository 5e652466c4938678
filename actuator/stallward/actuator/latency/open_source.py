"""Opening the latency source that a configuration names."""

from __future__ import annotations

import socket
from dataclasses import fields
from typing import Final

from stallward.actuator.latency.config import (
    LatencyConfig,
    LinesLatency,
    PrometheusLatency,
    describe,
)
from stallward.actuator.latency.lines.line_format import LineFormat
from stallward.actuator.latency.lines.line_source import LineSource
from stallward.actuator.latency.source import ChannelSource, LatencySource
from stallward.actuator.latency.window import WINDOW_S

_SILENT_S: Final = 1.5
"""How long a feed may be silent: three of its heartbeats."""


def open_source(
    config: LatencyConfig | None, latencies: socket.socket | None
) -> LatencySource | None:
    """Open the source that a configuration names; ``None`` if it names none.

    Args:
        config: The ``[latency]`` table.
        latencies: The socket on which another process sends latencies, for sources that are not
            read here. Without it there is no such source (an environment that steps a node reads
            lines only).

    Raises:
        ConfigError: If the format of the lines is not valid.
    """
    if isinstance(config, LinesLatency):
        return LineSource(config.path, format_of(config))
    if config is None or latencies is None:
        return None
    return ChannelSource(
        latencies,
        name=describe(config),
        silent_s=config.silent_s if isinstance(config, PrometheusLatency) else _SILENT_S,
        window_s=config.window_s if isinstance(config, PrometheusLatency) else WINDOW_S,
    )


def format_of(config: LinesLatency) -> LineFormat:
    """Return the format of the lines that a configuration describes.

    Raises:
        ConfigError: If it is not valid.
    """
    names = {f.name for f in fields(LinesLatency)} - {"path", "source"}
    return LineFormat(**{name: getattr(config, name) for name in names})
