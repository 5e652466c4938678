"""The pods of this node as they are known now; a source fills it and the process reads it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from stallward.kubernetes.pod import OddPod, Pod


class Known(NamedTuple):
    """What is known of the pods."""

    pods: tuple[Pod | OddPod, ...]
    fault: str
    """Why they cannot be looked up now; empty if they can."""
    version: int
    """A number that changes with all that."""
    listed: bool
    """Whether a whole list was taken once: before, it is not known which pods there are."""


class PodStore:
    """Pods by their ``metadata.uid``. What is known stays known while a source fails.

    Args:
        keys: The keys of labels and annotations that are kept of each; all by default.
    """

    def __init__(self, keys: frozenset[str] | None = None) -> None:
        self.keys = keys
        """The keys of labels and annotations that are kept of each pod; ``None`` for all."""
        self._pods: dict[str, Pod | OddPod] = {}
        self._fault = "none is known yet"
        self._changed = threading.Condition()
        self._version = 0
        self._listed = False

    def replace(self, pods: Iterable[Pod | OddPod]) -> None:
        """Take a whole list: what is not in it is gone. Of pods with one UID none is believed."""
        known: dict[str, Pod | OddPod] = {}
        for number, pod in enumerate(pods):
            key = pod.key or f"#{number}"
            twice = OddPod(key=key, why=f"{pod}: another pod of the list has its UID")
            known[key] = twice if key in known else pod
        with self._changed:
            if (known, "", True) != (self._pods, self._fault, self._listed):
                self._pods, self._fault, self._listed = known, "", True
                self._tell()

    def put(self, pod: Pod | OddPod) -> None:
        """Take one pod that is new or has changed."""
        with self._changed:
            self._pods[pod.key] = pod
            self._tell()

    def remove(self, key: str) -> None:
        """Forget a pod that is gone."""
        with self._changed:
            self._pods.pop(key, None)
            self._tell()

    def fail(self, fault: str) -> None:
        """Note why the pods cannot be looked up now; empty once they can."""
        with self._changed:
            if fault != self._fault:
                self._fault = fault
                self._tell()

    def _tell(self) -> None:
        self._version += 1
        self._changed.notify_all()

    def read(self) -> Known:
        """Return what is known."""
        with self._changed:
            return Known(tuple(self._pods.values()), self._fault, self._version, self._listed)

    def wait(self, version: int, timeout_s: float) -> bool:
        """Wait until something has changed since ``version``, but not for ever; return whether."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version != version, timeout_s)


class PodSource(Protocol):
    """Keeps a store up to date."""

    @property
    def name(self) -> str:
        """What is asked, for people."""

    def look(self, store: PodStore) -> None:
        """Fill the store once.

        Raises:
            PodsError: If the pods cannot be looked up.
        """

    def run(self, store: PodStore, ended: threading.Event) -> None:
        """Follow the pods until ``ended``; what fails is noted in the store and tried again."""
