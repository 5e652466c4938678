"""The two freezers of cgroups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.files import OpenFile, why_unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class Freezer:
    """The files of one group's freezer."""

    path: Path
    """The file that is written."""
    freeze: str
    """The word that freezes the group."""
    thaw: str
    """The word that thaws the group."""
    asked: OpenFile
    """The file that says whether a freeze of this very group is requested."""
    asked_word: bytes
    """The content of ``asked`` while a freeze is requested."""
    state: OpenFile
    """The file that says whether the whole group is frozen."""
    state_word: bytes
    """A line of ``state`` while the whole group is frozen."""

    def requested(self) -> bool:
        """Whether a freeze of this group is requested now."""
        content = self.asked.read()
        return content is not None and content.strip() == self.asked_word

    def frozen(self) -> bool:
        """Whether the whole group is frozen now, be it by itself or by an ancestor."""
        content = self.state.read()
        return content is not None and self.state_word in content.splitlines()

    def identity(self) -> int | None:
        """The file's inode number, which changes when the group is removed and made anew."""
        try:
            return self.path.stat().st_ino
        except OSError:
            return None


def find_freezer(group: Cgroup) -> tuple[Freezer | None, str]:
    """Return the freezer of a group, or ``None`` and why there is none.

    The v2 freezer is preferred: processes that it has frozen can still be killed.
    """
    folder = group.unified_dir
    why = ""
    if folder is not None and group.exists():
        why = why_unreadable(folder / "cgroup.freeze")
    if folder is not None and not why:
        freezer = Freezer(
            path=folder / "cgroup.freeze",
            freeze="1",
            thaw="0",
            asked=OpenFile(folder / "cgroup.freeze"),
            asked_word=b"1",
            state=OpenFile(folder / "cgroup.events"),
            state_word=b"frozen 1",
        )
        return freezer, ""
    v1 = group.v1_dir("freezer")
    if v1 is not None and not why_unreadable(v1 / "freezer.state"):
        freezer = Freezer(
            path=v1 / "freezer.state",
            freeze="FROZEN",
            thaw="THAWED",
            asked=OpenFile(v1 / "freezer.self_freezing"),
            asked_word=b"1",
            state=OpenFile(v1 / "freezer.state"),
            state_word=b"FROZEN",
        )
        return freezer, ""
    if folder is None:
        return None, "no v2 hierarchy to freeze in"
    return (
        None,
        f"{why} (kernel 5.2 or newer has it), and the group is not in a v1 freezer hierarchy",
    )
