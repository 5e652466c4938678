"""The configuration of oomd for a sandbox: the one that Debian ships, with the sandbox's groups.

The packaged file is upstream's src/oomd/etc/desktop.json. It watches and kills what is below
``user.slice`` and ``system.slice``, which a sandbox has not. Here the zone is the slice, and the
background groups are what may be killed. With cgroup v2 nothing else differs: "user session
protection" and "protection against low swap", with their thresholds and plugins.

On a hybrid node the groups have no ``memory.*`` files, and oomd takes what it cannot read for 0.
What needs them is left out there: reclaim (``memory.stat``) does not have to be seen, the group
that stalls most is killed instead of the one that holds or grows most (``memory.current``), and
there is no ruleset on swap (``memory.swap.current``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from stallward.env.sandbox.sandbox import Sandbox

OOMD_CONFIG: Final = Path("/etc/oomd/oomd.json")
"""The packaged configuration, whose rulesets are repeated here."""
_PRESSURE_PERCENT: Final = 60
_PRESSURE_S: Final = 30
_RECLAIM_S: Final = 10
_SWAP_FREE_PERCENT: Final = 10


def oomd_rules(sandbox: Sandbox) -> str:
    """Make the configuration of oomd for a sandbox, as JSON."""
    zone = sandbox.zone.name
    background = ",".join(slot.name for slot in sandbox.slots)
    pressure = _plugin(
        "pressure_above",
        cgroup=zone,
        resource="memory",
        threshold=_PRESSURE_PERCENT,
        duration=_PRESSURE_S,
    )
    if sandbox.zone.hierarchy.kind != "v2":
        by_pressure = _plugin("kill_by_pressure", cgroup=background, resource="memory")
        rulesets = [_ruleset("user session protection", [pressure], by_pressure)]
        return json.dumps({"rulesets": rulesets})
    reclaim = _plugin("memory_reclaim", cgroup=zone, duration=_RECLAIM_S)
    swap = _plugin("swap_free", threshold_pct=_SWAP_FREE_PERCENT)
    by_size = _plugin("kill_by_memory_size_or_growth", cgroup=background)
    by_swap = _plugin("kill_by_swap_usage", cgroup=background)
    rulesets = [
        _ruleset("user session protection", [pressure, reclaim], by_size),
        _ruleset("protection against low swap", [swap], by_swap),
    ]
    return json.dumps({"rulesets": rulesets})


def _plugin(name: str, **arguments: str | int) -> dict[str, object]:
    """A detector or an action; oomd takes arguments as text."""
    return {"name": name, "args": {key: str(value) for key, value in arguments.items()}}


def _ruleset(
    name: str, detectors: list[dict[str, object]], action: dict[str, object]
) -> dict[str, object]:
    return {"name": name, "detectors": [[name, *detectors]], "actions": [action]}
