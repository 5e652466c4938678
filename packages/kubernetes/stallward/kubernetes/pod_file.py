"""Pods from a file that another program keeps, for nodes without the API and for tests."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from stallward.kubernetes.errors import PodsError
from stallward.kubernetes.items import Items
from stallward.kubernetes.pod import parse_pods
from stallward.kubernetes.store import PodStore

READ_S: Final = 0.5
"""How often the file is read."""
_SAID: Final = 300
"""At most so many characters of an error are said."""


class PodFile:
    """Reads the file again and again; it should be replaced as a whole (written aside, renamed).

    Args:
        path: The file, JSON as ``kubectl get pods -o json`` prints it.
        period_s: How often it is read.
    """

    def __init__(self, path: Path, *, period_s: float = READ_S) -> None:
        self._path = path
        self._period_s = period_s
        self._read: tuple[int, ...] = ()
        """What file was read last: it is read again once it is another one, or has changed."""

    @property
    def name(self) -> str:
        """What is asked, for people."""
        return str(self._path)

    def run(self, store: PodStore, ended: threading.Event) -> None:
        """Read until ``ended``."""
        while True:
            self.step(store)
            if ended.wait(self._period_s):
                return

    def step(self, store: PodStore) -> None:
        """Read once; note in the store if that fails."""
        try:
            self.look(store)
        except PodsError as error:
            store.fail(f"{error} What is known stays in force.")

    def look(self, store: PodStore) -> None:
        """Read once.

        Raises:
            PodsError: If the file cannot be read or used.
        """
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                read = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
                if read != self._read:
                    store.replace(parse_pods({"items": Items(file.read)}, store.keys))
                    self._read = read
            store.fail("")
        except OSError as error:
            raise PodsError(f"{self._path} cannot be read ({error.strerror}).") from error
        except PodsError as error:
            raise PodsError(f"{self._path} cannot be used: {error}"[:_SAID]) from error
