"""Which signals a node does not have, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from stallward.agent.sample import GroupSample, NodeSample, PsiTotals, Sample

_MAY_BE_UNLIMITED = frozenset({"memory_limit_bytes"})


def missing_signals(sample: Sample, faults: Sequence[str] = ()) -> tuple[str, ...]:
    """The signals absent in ``sample``, e.g. ``protected.psi.io_some_us``.

    A limit is never among them: there ``None`` means that there is none.

    Args:
        sample: What was read.
        faults: What was there but could not be understood; listed too.
    """
    parts: list[tuple[str, NodeSample | GroupSample]]
    parts = [("node", sample.node), ("zone", sample.zone), ("protected", sample.protected)]
    parts += [(f"slots[{i}]", slot) for i, slot in enumerate(sample.slots)]
    names = [name for prefix, part in parts for name in _absent(prefix, part)]
    if sample.latency is None:
        names.append("latency")
    return (*names, *faults)


def _absent(prefix: str, part: NodeSample | GroupSample | PsiTotals) -> list[str]:
    names: list[str] = []
    for field in fields(part):
        value = getattr(part, field.name)
        name = f"{prefix}.{field.name}"
        if isinstance(value, PsiTotals):
            names += _absent(name, value)
        elif value is None and field.name not in _MAY_BE_UNLIMITED:
            names.append(name)
    return names
