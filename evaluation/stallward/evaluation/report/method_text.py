"""How a comparison was made, in words."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from stallward.evaluation.report.text import number, seconds, target


def _method(result: Mapping[str, Any]) -> str:
    method, node = result["method"], dict(result["node"])
    memory = node.pop("memory_total_bytes", None)
    facts = [
        ("node", _in_words(node)),
        *(("and, since it went on", _in_words(other)) for other in result.get("other_nodes", ())),
        ("memory", f"{memory / 2**30:.1f} GiB" if memory else ""),
        ("sandbox", f"{method['sandbox_limit_bytes'] / 2**20:.0f} MiB"),
        (
            "background",
            ", ".join(
                f"{name} ({unit})"
                for name, unit in zip(method["groups"], method["units"], strict=True)
            ),
        ),
        (
            "SLO",
            f"{target(result)} in each window ({result['slo_source']}); controllers were "
            f"told {number(method['controller_slo_ms'], 'ms')} ms",
        ),
        (
            "blocks",
            f"{method['rounds']} rounds of {seconds(method['block_s'])} after "
            f"{seconds(method['burn_in_s'])} of burn-in, order drawn from seed "
            f"{method['seed']}",
        ),
        ("intervals", _intervals(result)),
        ("invalid blocks", _invalid(result)),
        ("policies", ", ".join(f"{k}: {v}" for k, v in method["policies"].items())),
        (
            "* budgets lifted",
            ", ".join(label for label, arm in result["arms"].items() if arm.get("budgets_lifted")),
        ),
        ("† background processes terminated", _terminated(result)),
    ]
    return (
        "<dl>"
        + "".join(
            f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts if value
        )
        + "</dl>"
    )


def _intervals(result: Mapping[str, Any]) -> str:
    if result["resampled"] == "blocks":
        return (
            "95 %, rounds resampled 2000 times jointly for arm and references, t-corrected for "
            "the number of rounds"
        )
    return "95 %, windows inside the single block resampled; variation between blocks is missing"


def _in_words(node: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in node.items() if value not in ("", None))


def _terminated(result: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{label}: {count} in {arm['blocks']} blocks"
        for label, arm in result["arms"].items()
        if (count := arm.get("terminated_processes", 0))
    )


def _invalid(result: Mapping[str, Any]) -> str:
    found = {label: arm.get("invalid_blocks", 0) for label, arm in result["arms"].items()}
    text = ", ".join(f"{label} {count}" for label, count in found.items() if count)
    return f"{text} (out-of-memory kills; run again)" if text else "none"
