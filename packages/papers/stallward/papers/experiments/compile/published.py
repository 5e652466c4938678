"""What the thesis says of its compilations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SOURCE: Final = (
    "A thesis on Denning's working-set method (Birkbeck, University of London, 2011), sections 5 "
    "to 7: `make -j3` of Linux 3.0.0 on a virtual machine with two processors and 36 to 1024 MB"
)
POWER: Final = 4
"""It fits T = k / M^4 + c."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedArm:
    """A patch of the kernel."""

    section: str
    found: str
    """What came of it."""


FOUND: Final = {
    "flush": PublishedArm(section="6.2", found="not timed, as few pages were dirty"),
    "clear": PublishedArm(section="6.3", found="a longer median at 96 MB"),
    "clear at MIN": PublishedArm(section="6.3.1", found="no improvement"),
    "clear, no writeback": PublishedArm(section="6.3.2", found="no improvement"),
    "deactivate": PublishedArm(
        section="6.4", found="the same with more memory, noticeably worse with less"
    ),
    "promote next": PublishedArm(section="7.2", found="no improvement"),
    "promote most-run": PublishedArm(
        section="7.3", found="the same with more memory, enormously slower with least"
    ),
    "activate most-run": PublishedArm(
        section="7.4", found="the same with more memory, poor with less"
    ),
    "activate and mark": PublishedArm(section="7.4.1", found="very poor at 36 to 48 MB"),
    "clear most-run": PublishedArm(section="7.5", found="notably worse at 40 MB"),
}
"""Name of an arm -> the patch that it stands for."""
PROFILE_FAULTS: Final = (57_954, 166_717)
"""Ticks in the page fault handler at 40 MB: unpatched, and with the patch of section 7.5."""
PROFILE_IDLE: Final = (5.7e6, 20.3e6)
"""Ticks in the idle loop there."""
PROFILE_REQUESTS: Final = (2.5e6, 10.3e6)
"""Ticks in making requests of the disk there."""
