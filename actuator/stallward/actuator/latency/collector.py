"""The collector process, which gathers latencies from outside so that the loop need not.

The guardian starts ``python -m stallward.actuator.latency.collector`` when the configuration
names an endpoint to scrape or a socket for datagrams. It sends the latencies to the loop, and
ends when the guardian does. A failure outside (no server listens, an address is taken) is
reported to the loop and tried again; it never ends the daemon. Standard library only.
"""

from __future__ import annotations

import select
import signal
import socket
import sys
import time
from typing import Final, Protocol

from stallward.actuator.latency.config import (
    UNIT_MS,
    CollectorOptions,
    PrometheusLatency,
    StatsdLatency,
)
from stallward.actuator.latency.feed import FLUSH_S, LatencyFeed
from stallward.actuator.latency.statsd import StatsdFilter, StatsdReceiver
from stallward.actuator.runtime.process_setup import lock_memory
from stallward.actuator.runtime.process_start import run_process

RETRY_S: Final = 1.0


class Gatherer(Protocol):
    """A source of latencies outside the daemon."""

    def step(self, until_s: float, life_fd: int) -> None:
        """Gather until ``until_s`` (CLOCK_MONOTONIC), or until ``life_fd`` is readable."""

    @property
    def period_s(self) -> float:
        """How long a step should take."""

    def close(self) -> None:
        """Close sockets and files."""


def gather(source: Gatherer, life_fd: int) -> None:
    """Gather until the guardian ends."""
    due_s = time.monotonic()
    while not select.select([life_fd], [], [], 0)[0]:
        # After a step that took long there is no burst of steps.
        due_s = max(due_s + source.period_s, time.monotonic())
        source.step(due_s, life_fd)
    source.close()


def make_gatherer(
    source: PrometheusLatency | StatsdLatency,
    feed: LatencyFeed,
    addresses: socket.socket | None = None,
) -> Gatherer:
    """What gathers from the configured source.

    Args:
        source: The source.
        feed: Takes the latencies.
        addresses: Where it comes which pod is asked, if the source is a pod.
    """
    if isinstance(source, PrometheusLatency):
        # Plain HTTP: OpenSSL would cost 4 MiB for nothing, and http.client does without.
        sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]
        from stallward.actuator.latency.prometheus.pod_address import (  # noqa: PLC0415
            PodAddresses,
        )
        from stallward.actuator.latency.prometheus.scraper import Scraper  # noqa: PLC0415

        return Scraper(
            source,
            unit_ms=UNIT_MS[source.unit],
            feed=feed,
            addresses=None if addresses is None else PodAddresses(addresses),
        )
    return StatsdReceiver(
        address=source.address,
        wanted=StatsdFilter.of(source),
        allowed_users=source.allowed_users,
        feed=feed,
        flush_s=FLUSH_S,
        retry_s=RETRY_S,
    )


def main(options: CollectorOptions) -> int:
    """The collector process; returns its exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # it holds nothing that must be put back
    feed = LatencyFeed(socket.socket(fileno=options.fd))
    fd = options.address_fd
    addresses = socket.socket(fileno=fd) if fd >= 0 else None
    lock_memory()
    gather(make_gatherer(options.source, feed, addresses), options.life_fd)
    return 0


if __name__ == "__main__":
    sys.exit(run_process("collector", CollectorOptions, main))
