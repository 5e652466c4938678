"""Puts the daemon's metrics together and serves them."""

from __future__ import annotations

from collections.abc import Mapping

from stallward.actuator.runtime.addresses import Address
from stallward.actuator.service.loop_link import LoopLink
from stallward.actuator.service.metrics.counts import About, TickCounts
from stallward.actuator.service.metrics.server import MetricsServer


async def serve_metrics(
    address: Address, link: LoopLink, refused: Mapping[str, int], about: About
) -> MetricsServer:
    """Count what comes through ``link`` from now on, and serve it.

    Raises:
        DaemonError: If the address cannot be had.
    """
    # prometheus_client costs memory: only where metrics are wanted.
    from stallward.actuator.service.metrics.exposition import DaemonMetrics  # noqa: PLC0415

    counts = TickCounts()
    link.on_tick = counts.take
    metrics = DaemonMetrics(counts=counts, link=link, refused=refused, about=about)
    server = MetricsServer(address, metrics.render)
    await server.start()
    return server
