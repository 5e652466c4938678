"""``stallward bench memory``: what the daemon's processes hold."""

from __future__ import annotations

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json


def memory(as_json: Json = False) -> None:
    """Measure the memory of the daemon's imports, and of locking."""
    from dataclasses import asdict  # noqa: PLC0415

    from stallward.evaluation.bench.memory import bench_memory  # noqa: PLC0415

    with output.progress("bench memory") as report:
        rows = bench_memory(report=report)
    if as_json:
        output.print_json([asdict(row) for row in rows])
        return
    output.table(
        ("process", "up to", "RSS MiB", "added", "private", "anonymous"),
        [
            (
                row.process,
                row.step,
                f"{row.rss_mib:.1f}",
                f"{row.added_mib:+.1f}",
                f"{row.private_mib:.1f}",
                f"{row.anon_mib:.1f}",
            )
            for row in rows
        ],
    )
