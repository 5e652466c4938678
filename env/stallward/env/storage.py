"""A folder on storage that fsspec knows by its URL: files are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

from stallward.env.errors import StorageError

_CHECK_FILE: Final = ".stallward-check"


class StorageFolder:
    """A folder of the storage.

    Args:
        url: For example ``s3://bucket/run`` or ``file:///mnt/run``, or a path of this machine.
        kept: A sentence for errors: where what was done is kept.

    Attributes:
        url: As given.
        system: The file system, as fsspec has it.
        root: The folder's place on it.

    Raises:
        StorageError: If there is no such kind of storage, or what it needs is not installed.
    """

    def __init__(self, url: str, *, kept: str) -> None:
        self.url, self._kept = url, kept
        with self.errors("opened"):
            from fsspec.core import url_to_fs  # noqa: PLC0415 - comes with torch

            found: tuple[Any, str] = url_to_fs(url)
            self.system, root = found
            self.root = root.rstrip("/")

    @property
    def local(self) -> Path | None:
        """The folder on this machine; ``None`` if it is elsewhere."""
        protocols = self.system.protocol
        here = "file" in ((protocols,) if isinstance(protocols, str) else protocols)
        return Path(self.root) if here else None

    def place(self, name: str) -> str:
        """The place of a file on the file system."""
        return f"{self.root}/{name}"

    def names(self, folder: str = "") -> list[str]:
        """The names of all files below a folder of it.

        Raises:
            StorageError: If it cannot be read.
        """
        below = self.place(folder) if folder else self.root
        with self.errors("read"):
            self.system.invalidate_cache()
            found = self.system.find(below) if self.system.exists(below) else []
            return sorted(place.removeprefix(self.root).lstrip("/") for place in found)

    def write(self, name: str, content: bytes) -> None:
        """Write one file; an interruption leaves the old one, or none.

        Raises:
            StorageError: If it cannot be written.
        """
        place = self.place(name)
        with self.errors("written"):
            self.system.makedirs(str(PurePosixPath(place).parent), exist_ok=True)
            if self.local is None:
                with self.system.transaction, self.system.open(place, "wb") as file:
                    file.write(content)
                return
            building = Path(place).with_name(f".{Path(place).name}.{os.getpid()}.partial")
            try:
                building.write_bytes(content)
                building.replace(place)
            finally:
                building.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove one file, if it is there.

        Raises:
            StorageError: If that is refused.
        """
        with self.errors("written"), contextlib.suppress(FileNotFoundError):
            self.system.rm_file(self.place(name))

    def check(self) -> None:
        """Write and remove a small file, before hours of work.

        Raises:
            StorageError: If that is refused.
        """
        self.write(_CHECK_FILE, b"")
        self.remove(_CHECK_FILE)

    @contextmanager
    def errors(self, done: str) -> Iterator[None]:
        """Translate the errors of the storage, which has its own kinds.

        Args:
            done: What is being done, for example ``written``.

        Raises:
            StorageError: For any error inside, unless it is one of ours.
        """
        try:
            yield
        except StorageError:
            raise
        except ImportError as error:  # e.g. "Install s3fs to access S3"
            raise StorageError(
                f"{self.url} cannot be {done}: {str(error).strip('.')}.",
                next_step="Install that package into the same environment.",
            ) from error
        except ValueError as error:  # e.g. an unknown protocol
            raise StorageError(
                f"{self.url} cannot be {done}: {str(error).strip('.')}.",
                next_step="Name a directory such as s3://bucket/run or file:///mnt/run.",
            ) from error
        except Exception as error:
            # Each kind of storage raises errors of its own libraries.
            cause = str(error).strip().rstrip(".") or type(error).__name__
            raise StorageError(
                f"{self.url} cannot be {done}: {cause}.",
                next_step=f"Check the address, the credentials and the rights. {self._kept}",
            ) from error
