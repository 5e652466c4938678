"""The node's vm.* settings, and the swappiness of v1 groups.

vm.swappiness does not reach existing v1 groups (each copied it when it was made), so theirs is
written too. The dirty ratios mean the whole machine's memory: where the zone is a sandbox, the
equivalent vm.dirty_bytes are written. Of ratio and bytes only the one in force is saved: writing
it back zeroes the other, as it was.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Final

from stallward.actuator.errors import LeverError
from stallward.actuator.groups import Group
from stallward.actuator.journal_entries import FileValue
from stallward.actuator.kernelfile import read_text, write_text
from stallward.actuator.levers.originals import Originals
from stallward.actuator.levers.result import LeverResult, attempt
from stallward.actuator.paths import Paths
from stallward.agent.desired import Tuning

_PAIRS: Final = ("dirty_background", "dirty")
_LEAST_DIRTY_BYTES: Final = 2 * 65536
"""The kernel takes no vm.dirty_bytes below two pages (of up to 64 KiB)."""
RETRY_S: Final = 1.0
"""How long a write that failed is not tried again."""


class VmKnobsLever:
    """Writes a tuning profile.

    Args:
        paths: The kernel's files.
        zone: Where the dirty ratios are shares of ``zone_limit_bytes``, unless it is the machine.
        protected: The protected application's group.
        slots: The background groups.
        zone_limit_bytes: The zone's memory.
        originals: Keeps the journal.
    """

    def __init__(
        self,
        *,
        paths: Paths,
        zone: Group,
        protected: Group,
        slots: tuple[Group, ...],
        zone_limit_bytes: int | None,
        originals: Originals,
    ) -> None:
        self._vm = paths.proc / "sys" / "vm"
        self._zone_bytes = None if zone.is_root else zone_limit_bytes
        self._originals = originals
        v1 = zone.hierarchy.kind == "hybrid"
        groups = (zone, *slots) if v1 else ()
        files = (_swappiness_file(group) for group in groups if not group.is_root)
        self._swappiness = tuple(file for file in files if file is not None)
        self._protected_swappiness = _swappiness_file(protected) if v1 else None
        self._held: dict[Path, str] = {}
        self._retry_at_s: dict[Path, float] = {}
        self._originals_of_pairs = {
            self._vm / f"{pair}_{unit}": self._note_pair(pair)
            for pair in _PAIRS
            for unit in ("bytes", "ratio")
        }
        for path in self._plain_files():
            originals.note_file(path)

    def _plain_files(self) -> tuple[Path, ...]:
        files = (self._vm / "swappiness", self._vm / "overcommit_memory", *self._swappiness)
        return (
            files if self._protected_swappiness is None else (*files, self._protected_swappiness)
        )

    def _note_pair(self, pair: str) -> FileValue | None:
        """Save the member in force: bytes if they are not zero, else the ratio."""
        for unit in ("bytes", "ratio"):
            path = self._vm / f"{pair}_{unit}"
            value = read_text(path)
            if value is not None and (unit == "ratio" or value != "0"):
                entry = FileValue(path, value)
                self._originals.note(entry)
                return entry
        return None

    def missing(self) -> tuple[str, ...]:
        """What of a tuning profile cannot be written here, and why."""
        reasons = []
        if self._protected_swappiness is None:
            reasons.append("protected_swappiness: cgroup v2 has no swappiness per group")
        for name in ("swappiness", "overcommit_memory", "dirty_ratio", "dirty_background_ratio"):
            path = self._vm / name
            try:
                with path.open("r+b"):
                    pass
            except OSError as error:
                reasons.append(f"vm.{name}: {error.strerror}")
        return tuple(reasons)

    def apply(self, tuning: Tuning) -> tuple[LeverResult, ...]:
        """Write what differs from what was written last; put back what is not wanted any more."""
        wanted = self._wanted(tuning)
        now_s = time.monotonic()
        results = [
            attempt(_label(path), "original", partial(self._restore, path))
            for path in tuple(self._held)
            if path not in wanted
        ]
        for path, value in wanted.items():
            if self._held.get(path) == value or now_s < self._retry_at_s.get(path, 0.0):
                continue
            result = attempt(_label(path), value, partial(self._write, path, value))
            if not result.ok:
                self._retry_at_s[path] = now_s + RETRY_S
            results.append(result)
        return tuple(results)

    def _wanted(self, tuning: Tuning) -> dict[Path, str]:
        wanted: dict[Path, str] = {}
        if tuning.swappiness is not None:
            wanted[self._vm / "swappiness"] = str(tuning.swappiness)
            for path in (*self._swappiness, self._protected_swappiness):
                if path is not None and path.exists():  # a group may not be there yet
                    wanted[path] = str(tuning.swappiness)
        if tuning.protected_swappiness is not None and self._protected_swappiness is not None:
            wanted[self._protected_swappiness] = str(tuning.protected_swappiness)
        if tuning.overcommit_memory is not None:
            wanted[self._vm / "overcommit_memory"] = str(tuning.overcommit_memory)
        ratios = (tuning.dirty_background_ratio, tuning.dirty_ratio)
        for pair, ratio in zip(_PAIRS, ratios, strict=True):
            if ratio is None:
                continue
            if self._zone_bytes is None:
                wanted[self._vm / f"{pair}_ratio"] = str(round(ratio))
            else:
                size = max(int(self._zone_bytes * ratio / 100), _LEAST_DIRTY_BYTES)
                wanted[self._vm / f"{pair}_bytes"] = str(size)
        return wanted

    def _write(self, path: Path, value: str) -> None:
        pair = self._originals_of_pairs.get(path)
        if pair is None:
            self._originals.ensure_file(path)
        else:
            self._originals.ensure(pair)
        self._refuse_if_foreign(path)
        self._held[path] = value
        try:
            write_text(path, value)
        except Exception:
            self._held[path] = ""  # perhaps written, so it is put back; tried again until then
            raise

    def _restore(self, path: Path) -> None:
        try:
            self._refuse_if_foreign(path)
        except LeverError:
            del self._held[path]
            self._adopt(path)
            raise
        pair = self._originals_of_pairs.get(path)
        value = self._originals.value(path)
        if pair is not None:
            write_text(pair.path, pair.value)
        elif value is not None and path.exists():
            write_text(path, value)
        del self._held[path]  # not before: what failed is tried again

    def _refuse_if_foreign(self, path: Path) -> None:
        """Keep hands off what somebody else has set since it was written here.

        Raises:
            LeverError: Saying what it is now.
        """
        held = self._held.get(path)
        now = read_text(path) if held else None
        if now is not None and now != held:
            raise LeverError(f"{path} is {now} now, set by somebody else; left as it is.")

    def _adopt(self, path: Path) -> None:
        """Take what somebody else has set for the original from now on."""
        self._originals.forget(path)
        for pair in _PAIRS:
            members = [self._vm / f"{pair}_{unit}" for unit in ("bytes", "ratio")]
            if path in members:
                noted = self._note_pair(pair)
                self._originals_of_pairs.update(dict.fromkeys(members, noted))

    @property
    def held(self) -> bool:
        """Whether anything is not as it was."""
        return bool(self._held)


def _swappiness_file(group: Group) -> Path | None:
    return None if group.memory_dir is None else group.memory_dir / "memory.swappiness"


def _label(path: Path) -> str:
    if path.parent.name == "vm":
        return f"vm.{path.name}"
    return f"swappiness:{path.parent.name}"
