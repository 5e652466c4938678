"""A copy of a command's files on shared storage, named by a URL that fsspec knows.

What is on the storage and not here, or has not changed here since it was last copied, is fetched
first, so that an interrupted run goes on, on any machine. Whatever is new or changed is stored as
soon as a part of the run is done.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from stallward.env.storage import StorageFolder

_FILE_ENDINGS: Final = (".json", ".toml")
"""An output with one of these is a file, any other one a directory."""
_PARTS_ENDING: Final = ".parts"
_State = tuple[int, int]
"""Size and time of change of a file."""
_OTHER: Final[_State] = (-1, -1)
"""The state of a file that is stored with another content, as far as is known."""


def parts_of(out: Path) -> Path:
    """The directory for what is done of an output that is a file, until it can be written."""
    return out.with_name(f"{out.name}{_PARTS_ENDING}")


class Storage:
    """The copy of one output, and of its parts.

    Args:
        url: A directory of the storage, for example ``s3://bucket/run`` or ``file:///mnt/run``.
        out: The output of the command: a directory, or a file that ends in .json or .toml, which
            may have parts beside it (:func:`parts_of`).

    Raises:
        StorageError: If there is no such kind of storage, or what it needs is not installed.
    """

    def __init__(self, url: str, out: Path) -> None:
        kept = "What is done is kept in --out; the same command goes on."
        self._folder, self._out = StorageFolder(url, kept=kept), out
        self._stored: dict[str, _State] = {}
        self._notes = out.with_name(f".{out.name}.stored")

    def fetch(self) -> None:
        """Copy what is on the storage and not here; files that have changed here stay.

        Raises:
            StorageError: If it cannot be read.
        """
        copied = self._last_copied()
        for name in self._folder.names():
            local = self._local(name)
            if local is None:
                continue
            if local.exists() and copied.get(name) != _state(local):
                self._stored[name] = _OTHER
                continue
            with self._folder.errors("read"):
                local.parent.mkdir(parents=True, exist_ok=True)
                building = local.with_name(f".{local.name}.partial")
                self._folder.system.get_file(self._folder.place(name), str(building))
                building.replace(local)
                self._stored[name] = _state(local)
        self._note()

    def store(self) -> None:
        """Copy what is new or has changed here, and remove there what was removed here.

        Raises:
            StorageError: If it cannot be written.
        """
        here = {name: _state(path) for name, path in self._files()}
        changed = [name for name, state in here.items() if self._stored.get(name) != state]
        for name in sorted(changed, key=_json_last):
            self._put(name, here[name])
        for name in self._stored.keys() - here.keys():
            self._folder.remove(name)
            del self._stored[name]
        self._note()

    def check(self) -> None:
        """Write and remove a small file, before hours of work.

        Raises:
            StorageError: If that is refused.
        """
        self._folder.check()

    def _put(self, name: str, state: _State) -> None:
        local = self._local(name)
        assert local is not None  # it was listed
        self._folder.write(name, local.read_bytes())
        self._stored[name] = state

    def _last_copied(self) -> dict[str, _State]:
        """The files here as they were last copied from or to this storage."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            noted = json.loads(self._notes.read_text("utf-8")).get(self._folder.url, {})
            return {name: tuple(state) for name, state in noted.items()}
        return {}

    def _note(self) -> None:
        if not self._stored:
            return
        with contextlib.suppress(OSError):  # without notes, what is here counts as changed
            self._notes.write_text(json.dumps({self._folder.url: self._stored}), "utf-8")

    def _local(self, name: str) -> Path | None:
        """Where a file of the storage belongs here; ``None`` for one that is not of this output."""
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts:
            return None
        if self._out.suffix not in _FILE_ENDINGS:
            return None if _is_unfinished(parts) else self._out.joinpath(*parts)
        is_part = parts[0] == parts_of(self._out).name and not _is_unfinished(parts[1:])
        ours = name == self._out.name or is_part
        return self._out.parent.joinpath(*parts) if ours else None

    def _files(self) -> Iterator[tuple[str, Path]]:
        if self._out.suffix not in _FILE_ENDINGS:
            yield from _files_below(self._out, self._out)
            return
        yield from _files_below(parts_of(self._out), self._out.parent)
        if self._out.exists():
            yield self._out.name, self._out


def _files_below(folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """The finished files in a directory, named from ``root``."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not _is_unfinished(path.relative_to(folder).parts):
            yield path.relative_to(root).as_posix(), path


def _is_unfinished(parts: Sequence[str]) -> bool:
    return any(part.startswith(".") or part.endswith(".partial") for part in parts)


def _state(path: Path) -> _State:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _json_last(name: str) -> tuple[bool, str]:
    """The order of storing: what says that a part is done comes after the part."""
    return name.endswith(".json"), name
