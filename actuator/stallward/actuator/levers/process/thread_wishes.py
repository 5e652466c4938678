"""What is wanted of the threads of a group: one value for all, or one for some. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from stallward.actuator.kernel.scheduling import NICE
from stallward.agent.threads import ThreadRef


class ThreadWishes(Protocol):
    """Wishes are equal if they want the same for every thread."""

    @property
    def text(self) -> str:
        """All wishes in words, as the tick record shows them."""

    def of(self, thread: ThreadRef) -> str | None:
        """What is wanted of a thread; ``None`` for nothing."""

    def value(self, thread: ThreadRef, original: str) -> str:
        """The value for a thread whose own is ``original``."""


@dataclass(frozen=True, slots=True)
class ForAll:
    """One value for every thread of a slot: never a better nice value than a thread's own."""

    what: str
    wanted: str

    @property
    def text(self) -> str:
        """The value."""
        return self.wanted

    def of(self, thread: ThreadRef) -> str | None:
        """The value, whatever the thread."""
        return self.wanted

    def value(self, thread: ThreadRef, original: str) -> str:
        """The value, or the thread's own nice value if that is worse."""
        return max(original, self.wanted, key=int) if self.what == NICE else self.wanted


@dataclass(frozen=True, slots=True)
class ForSome:
    """Values for single threads of the protected application; the others keep their own."""

    wanted: tuple[tuple[ThreadRef, str], ...]

    @property
    def text(self) -> str:
        """The value of each thread, as ``1234=100 1235=300``."""
        return " ".join(f"{thread.tid}={value}" for thread, value in self.wanted)

    def of(self, thread: ThreadRef) -> str | None:
        """The thread's value, if there is one."""
        return next((value for ref, value in self.wanted if ref == thread), None)

    def value(self, thread: ThreadRef, original: str) -> str:
        """The thread's value, or its own."""
        wanted = self.of(thread)
        return original if wanted is None else wanted
