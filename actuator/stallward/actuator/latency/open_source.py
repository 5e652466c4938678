"""Which latency source a configuration asks for."""

from __future__ import annotations

import socket
from dataclasses import fields
from typing import Final

from stallward.actuator.latency.config import (
    GrpcLatency,
    LatencyConfig,
    LinesLatency,
    PrometheusLatency,
)
from stallward.actuator.latency.line_format import LineFormat
from stallward.actuator.latency.line_source import LineSource
from stallward.actuator.latency.source import ChannelSource, LatencySource
from stallward.actuator.latency.window import WINDOW_S

_SILENT_S: Final = 1.5
"""Three heartbeats of a feed."""


def open_source(
    config: LatencyConfig | None, latencies: socket.socket | None
) -> LatencySource | None:
    """The source that a configuration names; ``None`` for none.

    Args:
        config: Where latencies come from.
        latencies: Where another process sends them, for sources that are not read here. Without
            it (an environment that steps a node reads lines only) there is no such source.

    Raises:
        ConfigError: If the format of lines cannot be used.
    """
    if isinstance(config, LinesLatency):
        names = {f.name for f in fields(LinesLatency)} - {"path", "source"}
        return LineSource(config.path, LineFormat(**{n: getattr(config, n) for n in names}))
    if config is None or latencies is None:
        return None
    return ChannelSource(
        latencies,
        name=describe(config),
        silent_s=config.silent_s if isinstance(config, PrometheusLatency) else _SILENT_S,
        window_s=config.window_s if isinstance(config, PrometheusLatency) else WINDOW_S,
    )


def describe(config: LatencyConfig) -> str:
    """How messages call a source."""
    if isinstance(config, LinesLatency):
        return f"lines of {config.path}"
    if isinstance(config, PrometheusLatency):
        return f"latency from {config.url}"
    if isinstance(config, GrpcLatency):
        return "latency from Report of the service"
    return f"latency from StatsD at {config.listen}"
