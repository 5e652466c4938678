"""The daemon's configuration for one live block: its groups, its files, its latency source."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    ExperimentsConfig,
    JournalConfig,
    NodeConfig,
    PolicyConfig,
    ProtectedConfig,
    RecordConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.latency.config import LinesLatency
from stallward.env.sandbox.block import BlockSite
from stallward.env.scenario.scenario import LatencyLines


def site_config(
    site: BlockSite,
    place: Path,
    *,
    control: ControlConfig,
    guard: Budgets,
    record: RecordConfig | None = None,
    experiments: ExperimentsConfig | None = None,
) -> DaemonConfig:
    """Configure a daemon, or its sensors and levers alone, for a block.

    It counts page-cache hits and misses where the node allows eBPF.

    Args:
        site: The block's groups and files.
        place: A folder for the socket ``actuator.sock`` and the journal.
        control: The controller and its settings.
        guard: The budgets of the guard.
        record: Where tick records go; ``None`` to record nothing.
        experiments: Where experiments are kept; ``None`` to run none.
    """
    node = NodeConfig.at(site.sandbox.paths, zone=site.sandbox.zone.name)
    several = len(site.scenario.applications) > 1
    return DaemonConfig(
        # Every arm of a comparison pays the same for it, and it ends with the block.
        node=replace(node, page_cache="auto"),
        protected=_applications(site) if several else _protected(site),
        background=tuple(
            SlotConfig(name=spec.name, group=group.name, floor_bytes=spec.floor_bytes)
            for spec, group in zip(site.scenario.background, site.sandbox.slots, strict=True)
        ),
        service=ServiceConfig(socket=place / "actuator.sock"),
        journal=JournalConfig(path=place / "journal"),
        latency=None if several else _latency(site.latency),
        control=control,
        guard=guard,
        record=record,
        experiments=experiments or ExperimentsConfig(),
        policy=PolicyConfig(canary_s=0.0),  # a block measures its policy, however bad it is
    )


def _protected(site: BlockSite) -> ProtectedConfig:
    """The only protected application, or what the first of several has beside its own."""
    return ProtectedConfig(group=site.sandbox.protected.name, groups=(site.sandbox.load.name,))


def _applications(site: BlockSite) -> tuple[ProtectedConfig, ...]:
    """Several protected applications, each with its own target and latencies."""
    first = _protected(site)
    return tuple(
        replace(
            first if index == 0 else ProtectedConfig(group=group.name),
            name=spec.name,
            slo_ms=spec.slo.latency_ms,
            latency=_latency(latency),
        )
        for index, (spec, group, latency) in enumerate(
            zip(site.scenario.applications, site.sandbox.applications, site.latencies, strict=True)
        )
    )


def _latency(lines: LatencyLines) -> LinesLatency:
    """Convert a scenario's latency source into the daemon's form."""
    known = {f.name for f in fields(LinesLatency)} & {f.name for f in fields(LatencyLines)}
    values = {name: getattr(lines, name) for name in known - {"path"}}
    return LinesLatency(path=Path(lines.path), **values)
