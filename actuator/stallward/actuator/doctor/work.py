"""A try, within seconds, of the sources of the background's work."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from stallward.actuator.config.tables import SlotConfig
from stallward.actuator.doctor.finding import Finding, finding
from stallward.actuator.errors import WorkError
from stallward.actuator.work.collector import make_reader
from stallward.actuator.work.config import CommandWork, CpuWork, FileWork, ReadWork, describe
from stallward.actuator.work.counter import fault_of
from stallward.agent.sample import WorkFault

_MOST_S: Final = 2.0
"""How long an endpoint or a command may take here."""


def try_work(slots: Iterable[SlotConfig]) -> Iterable[Finding]:
    """Read each source once.

    Yields:
        A finding for each slot. Processor time works, and the finding says that it is used.
    """
    for slot in slots:
        name = f"work of {slot.name}"
        if isinstance(slot.work, CpuWork):
            yield finding("signal", name, "", "", works="its processor time")
            continue
        fault, value = _read(slot.work)
        yield finding(
            "signal",
            name,
            f"{describe(slot.work)} {fault}" if fault else "",
            f"Correct [background.work] of {slot.name}, or start what writes it.",
            works=f"{value:g} {slot.work.unit} so far, from {slot.work.source}",
        )


def _read(work: ReadWork) -> tuple[str, float]:
    """Return what is wrong with a source, empty if nothing is, and its value."""
    bounded = work
    if not isinstance(work, FileWork):
        bounded = replace(work, timeout_s=min(work.timeout_s, _MOST_S))
    reader = make_reader(bounded)
    began_s = time.monotonic()
    try:
        values = reader.read()
    except WorkError as error:
        slow = error.fault is WorkFault.LATE and isinstance(work, CommandWork)
        return ("takes long: it was not waited for" if slow else error.cause), 0.0
    finally:
        reader.close()
    for value in values.values():
        fault = fault_of(value)
        if fault is not WorkFault.NONE:
            return f"shows {value:g}, which is {fault.value.replace('-', ' ')}", 0.0
    took_s = time.monotonic() - began_s
    if took_s > work.period_s:
        return f"takes {took_s:.1f} s, more than its period of {work.period_s:g} s", 0.0
    return "", sum(values.values())
