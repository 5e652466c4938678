"""The command that ``stallward`` finds by the entry point of this package."""

from __future__ import annotations

from stallward.actuator.cli.lazy import lazy_app

app = lazy_app(
    "stallward.benchmarks.bench:app",
    "Measure the daemon's own cost, or the environment's speed.",
)
