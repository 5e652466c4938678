"""Slots that are systemd units with a watchdog: a pause must end before systemd ends the unit.

A unit with ``WatchdogSec=`` that does not report in time is killed, and mostly started again. The
setting is read from the unit's files, as systemd.unit(5) orders them: the first folder that has the
file counts, and drop-ins change it in the order of their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.doctor.finding import Finding
from stallward.actuator.doctor.node_facts import MOST_GROUPS, text_of
from stallward.actuator.kernel.cgroups import Walk
from stallward.actuator.kernel.hierarchies import detect

_FOLDERS: Final = (
    "run/systemd/transient",
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
)
_SECTION: Final = re.compile(r"\[([^\]]+)\]")
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_UNITS_S: Final = {
    "us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "": 1.0, "s": 1.0, "sec": 1.0,
    "second": 1.0, "seconds": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0,
}  # fmt: skip
"""The units of systemd.time(7) that a watchdog may be given in."""


def watchdogs(config: DaemonConfig, root: Path = Path("/")) -> Iterable[Finding]:
    """The findings on slots of which a watchdog expects an answer sooner than a pause may end.

    Args:
        config: The configuration.
        root: The folder in which those of systemd are.
    """
    hierarchy = detect(config.node.paths)
    for slot in config.background:
        folder = None if slot.group is None else hierarchy.group(slot.group).memory_dir
        # A pause of a slice is one of all units in it.
        below: Iterable[Path] = () if folder is None else Walk(folder, most=MOST_GROUPS)
        group = Path(slot.group or "")
        # A group below a unit's own may hold the process that reports for the unit.
        inside = takewhile(lambda path: path.suffix != ".slice", (group, *group.parents))
        paths = (*inside, *below)
        units = {path.name for path in paths if path.suffix == ".service"}
        watched = [(span_s, unit) for unit in units if (span_s := watchdog_of(unit, root))]
        if not watched:
            continue
        watchdog_s, unit = min(watched)
        # sd_watchdog_enabled(3): a program should report twice within the time.
        tolerated_s = watchdog_s / 2.0
        pause_s = config.guard.max_pause_s
        if slot.max_pause_s is not None:
            pause_s = min(pause_s, slot.max_pause_s)
        if pause_s > tolerated_s:
            yield Finding(
                area="configuration",
                name=f"watchdog of {slot.name}",
                state="degraded",
                why=f"systemd ends {unit} if it does not report for {watchdog_s:g} s "
                f"(WatchdogSec), and a pause may last {pause_s:g} s",
                next_step=f"Write max_pause_s = {tolerated_s:g} under its [[background]].",
            )


def watchdog_of(unit: str, root: Path) -> float | None:
    """The time in which a unit must report, in seconds; ``None`` if it need not."""
    value = ""
    for text in _files_of(unit, root):
        for line in _service_lines(text):
            key, equals, right = line.partition("=")
            if equals and key.strip() == "WatchdogSec":
                value = right.strip()
    return parse_span_s(value)


def parse_span_s(text: str) -> float | None:
    """Parse a time span of systemd; ``None`` for none, for 0 and for what is not a time span."""
    words = _SPAN.findall(text)
    if not words or _SPAN.sub("", text).strip():
        return None
    if any(unit not in _UNITS_S for _, unit in words):
        return None
    span_s = sum(float(number) * _UNITS_S[unit] for number, unit in words)
    return span_s or None


def _files_of(unit: str, root: Path) -> Iterator[str]:
    """The contents of a unit's file and of its drop-ins; those of its template come first."""
    template = re.sub(r"@[^@]*\.service$", "@.service", unit)
    names = dict.fromkeys((template, unit))
    found = (root / folder / name for name in reversed([*names]) for folder in _FOLDERS)
    main = next((path for path in found if path.is_file()), None)
    if main is not None:
        yield text_of(main)
    drop_ins: dict[str, Path] = {}
    for folder in reversed(_FOLDERS):
        for name in names:
            for path in (root / folder / f"{name}.d").glob("*.conf"):
                drop_ins[path.name] = path
    for name in sorted(drop_ins):
        yield text_of(drop_ins[name])


def _service_lines(text: str) -> Iterator[str]:
    section = ""
    for line in map(str.strip, text.splitlines()):
        if found := _SECTION.fullmatch(line):
            section = found[1]
        elif section == "Service" and not line.startswith(("#", ";")):
            yield line
