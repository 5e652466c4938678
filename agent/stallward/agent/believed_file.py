"""Which files may be believed: those that nobody but root, and who owns the program, can write.

Certificates and their authorities, tokens, policies, journals, the programs that are run and the
kubelet's configuration decide what a process of root's does. What other users can write would let
them decide it. So do the modules that installed packages name in entry points.
"""

from __future__ import annotations

import os
import stat
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from stallward.agent.errors import StallwardError, UnbelievedFileError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

MOST_PEM_BYTES: Final = 4 << 20
"""The largest file of certificates; an authority may be a bundle of some hundreds."""
OPEN_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""A named pipe is opened without waiting for who writes to it, and then refused."""


def may_be_believed(status: os.stat_result, program: os.stat_result | None = None) -> bool:
    """Whether only root and this user can have written a file, and who can write the program.

    Args:
        status: The status of the file.
        program: The status of a file of the program; of this one, if not given.
    """
    program = Path(__file__).stat() if program is None else program
    owners = {0, os.geteuid(), program.st_uid}
    if status.st_mode & stat.S_IWOTH or status.st_uid not in owners:
        return False
    by_group = bool(status.st_mode & stat.S_IWGRP)
    same_group = bool(program.st_mode & stat.S_IWGRP) and status.st_gid == program.st_gid
    return not by_group or same_group


def check_believed(path: Path, status: os.stat_result) -> None:
    """Refuse what is not a file, or one that others can write.

    Args:
        path: Its path, for the message.
        status: The status of the open file, so that it is this one that is read.

    Raises:
        UnbelievedFileError: If it may not be believed.
    """
    if not stat.S_ISREG(status.st_mode):
        raise UnbelievedFileError(f"{path} is not a regular file.")
    if not may_be_believed(status):
        raise UnbelievedFileError(
            f"{path} is not used: its owner is {status.st_uid}, its mode "
            f"{stat.S_IMODE(status.st_mode):o}, so others may have written it.",
            next_step=f"See that it is yours; then chown root {path}; chmod go-w {path}",
        )


def read_believed(path: Path, most_bytes: int, fd: int | None = None) -> bytes:
    """Read a file that decides what this process does.

    Who is not root can only be made to do what its own user may, and believes any file.

    Args:
        path: The file; a link to it is followed.
        most_bytes: How much is read at most.
        fd: The file itself, if it was opened by ``OPEN_FLAGS`` in another way; it is closed.

    Raises:
        UnbelievedFileError: If it is no regular file, larger than ``most_bytes``, or, for root,
            one that others can write.
        OSError: If it cannot be read.
    """
    fd = os.open(path, OPEN_FLAGS) if fd is None else fd
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if os.geteuid() == 0 or not stat.S_ISREG(status.st_mode):
            check_believed(path, status)
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        size = max(status.st_size, len(content))
        raise UnbelievedFileError(
            f"{path} has {size} bytes or more, and at most {most_bytes} are read."
        )
    return content


def check_module(name: str) -> None:
    """Refuse, for root, a module of another package that others can write; import none of it.

    The packages that hold it are imported, each after its own file was checked.

    Args:
        name: The module, as an entry point names it.

    Raises:
        UnbelievedFileError: If others can write it.
        ImportError: If one of the packages cannot be imported.
    """
    if os.geteuid() != 0:
        return
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        found = find_spec(".".join(parts[:count]))
        if found is not None and found.origin is not None:
            path = Path(found.origin)
            check_believed(path, path.stat())


class Entry(Protocol):
    """An object that an entry point stands for."""

    @property
    def name(self) -> str:
        """Its name, which is that of the entry point."""


_E = TypeVar("_E", bound=Entry)


def installed_points(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group, by their names; nothing is imported."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - 2 MiB, which few daemons need

    return {point.name: point for point in entry_points(group=group)}


def load_entry(
    point: EntryPoint, kind: type[_E], what: str, error_type: type[StallwardError]
) -> _E:
    """Import what an entry point stands for.

    Args:
        point: The entry point.
        kind: The class of what it stands for.
        what: The same as a noun, for messages.
        error_type: The error that is raised.

    Raises:
        StallwardError: Of this type, if it cannot be imported, or is of another class or name.
        UnbelievedFileError: For root, if others can write its module.
    """
    try:
        check_module(point.module)
        entry = point.load()
    except ImportError as error:
        raise error_type(
            f"The {what} {point.name!r} ({point.value}) cannot be imported: {error}.",
            next_step="Install what it needs, or remove the package that names it.",
        ) from error
    if not isinstance(entry, kind) or entry.name != point.name:
        raise error_type(
            f"The entry point {point.name!r} ({point.value}) is no {kind.__name__} of that name.",
            next_step="Give both the same name, or remove the package that names it.",
        )
    return entry
