"""The collector process: gathers latencies from outside so that the loop never has to.

The guardian starts ``python -m stallward.actuator.latency.collector`` when the configuration
names an endpoint to scrape or a socket for datagrams. It sends what it gathers to the loop, and
ends when the guardian does. What goes wrong outside (nobody listens, an address is taken) is
said to the loop and tried again; it never ends the daemon. Standard library only.
"""

from __future__ import annotations

import argparse
import select
import signal
import socket
import sys
import time
from typing import Final, Protocol

from stallward.actuator.latency.feed import FLUSH_S, LatencyFeed
from stallward.actuator.latency.statsd import StatsdReceiver
from stallward.actuator.runtime.addresses import parse_address
from stallward.actuator.runtime.process_setup import stay_in_memory

RETRY_S: Final = 1.0


class Gatherer(Protocol):
    """One source outside."""

    def step(self, until_s: float, life_fd: int) -> None:
        """Gather until ``until_s`` (CLOCK_MONOTONIC), or until ``life_fd`` is readable."""

    @property
    def period_s(self) -> float:
        """How long a step is to take."""

    def close(self) -> None:
        """Let go of sockets and files."""


def gather(source: Gatherer, life_fd: int) -> None:
    """Gather until the guardian ends."""
    due_s = time.monotonic()
    while not select.select([life_fd], [], [], 0)[0]:
        # No bursts after a step that took long.
        due_s = max(due_s + source.period_s, time.monotonic())
        source.step(due_s, life_fd)
    source.close()


def make_gatherer(options: argparse.Namespace, feed: LatencyFeed) -> Gatherer:
    """The source that the command line names."""
    if options.url:
        # Plain HTTP: OpenSSL would cost 4 MiB for nothing, and http.client does without.
        sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]
        from stallward.actuator.latency.prometheus_scraper import Scraper  # noqa: PLC0415

        return Scraper(
            url=options.url,
            metric=options.metric,
            unit_ms=options.unit_ms,
            period_s=options.period_s,
            timeout_s=options.timeout_s,
            feed=feed,
        )
    return StatsdReceiver(
        address=parse_address(options.listen, "--listen"),
        metric=options.metric,
        tags=tuple(options.tag),
        unit_ms=options.unit_ms,
        feed=feed,
        flush_s=FLUSH_S,
        retry_s=RETRY_S,
    )


def main(arguments: list[str] | None = None) -> int:
    """The collector process; returns its exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # it holds nothing that must be put back
    parser = argparse.ArgumentParser(prog="stallward.actuator.latency.collector")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--life-fd", type=int, required=True)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--url")
    source.add_argument("--listen")
    parser.add_argument("--metric", required=True)
    parser.add_argument("--unit-ms", type=float, required=True)
    parser.add_argument("--period-s", type=float, default=0.25)
    parser.add_argument("--timeout-s", type=float, default=1.0)
    parser.add_argument("--tag", action="append", default=[])
    options = parser.parse_args(arguments)
    feed = LatencyFeed(socket.socket(fileno=options.fd))
    stay_in_memory()
    gather(make_gatherer(options, feed), options.life_fd)
    return 0


if __name__ == "__main__":
    sys.exit(main())
