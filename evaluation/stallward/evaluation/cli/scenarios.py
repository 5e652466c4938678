"""``stallward scenarios``."""

from __future__ import annotations

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json
from stallward.env.recording.split import load_split
from stallward.env.scenario.file import find_scenarios


def scenarios(as_json: Json = False) -> None:
    """List the shipped scenarios, with background, target and part."""
    shipped, split = find_scenarios(), load_split()
    if as_json:
        output.print_json(
            [
                {
                    "name": s.name,
                    "summary": s.summary,
                    "part": split.part_of(s),
                    "sandbox_limit_bytes": s.sandbox.limit_bytes,
                    "slo_ms": s.protected.slo.latency_ms,
                    "slo_quantile": s.protected.slo.quantile,
                    "applications": [
                        {
                            "name": one.name,
                            "slo_ms": one.slo.latency_ms,
                            "slo_quantile": one.slo.quantile,
                        }
                        for one in s.applications
                    ],
                    "background": [group.name for group in s.background],
                    "needs": [need.program for need in s.needs],
                }
                for s in shipped
            ]
        )
        return
    output.table(
        ("scenario", "part", "memory MiB", "SLO ms", "background", "what it is"),
        [
            (
                s.name,
                split.part_of(s),
                f"{s.sandbox.limit_bytes >> 20}",
                ", ".join(
                    "auto" if one.slo.latency_ms is None else f"{one.slo.latency_ms:g}"
                    for one in s.applications
                ),
                ", ".join(group.name for group in s.background),
                s.summary,
            )
            for s in shipped
        ],
    )
