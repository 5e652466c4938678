"""The protocol of latency sources, and the opener of the one that is configured."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Protocol

from stallward.actuator.latency.config import LatencyConfig, LinesLatency
from stallward.actuator.parts import Part, load_part
from stallward.agent.sample import LatencySample

if TYPE_CHECKING:
    from stallward.actuator.latency.counts import LatencyCounts


class LatencySource(Protocol):
    """A source of the protected application's latencies; reading never waits."""

    @property
    def fault(self) -> str:
        """Why the last read gave no latencies; empty if it did."""

    @property
    def counts(self) -> LatencyCounts:
        """What became of the input since its reader was started."""

    def read(self, now_s: float | None = None) -> LatencySample:
        """Return the latencies of the last second before ``now_s`` (CLOCK_MONOTONIC).

        Raises:
            SensorError: If there are none now; the message says why.
        """

    def close(self) -> None:
        """Close files and sockets."""


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
    source: LatencySource | None = None
    if isinstance(config, LinesLatency):
        source = load_part(Part.LATENCY_LINES)(config)
    elif config is not None and latencies is not None:
        source = load_part(Part.LATENCY_CHANNEL)(config, latencies)
    return source
