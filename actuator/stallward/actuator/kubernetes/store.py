"""The pods of this node as they are known now; a source fills it and the process reads it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Protocol

from stallward.actuator.kubernetes.pod import Pod


class PodStore:
    """Pods by UID. What is known stays known while a source fails."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._fault = "none is known yet"
        self._changed = threading.Condition()
        self._version = 0

    def replace(self, pods: Iterable[Pod]) -> None:
        """Take a whole list: what is not in it is gone."""
        with self._changed:
            self._pods = {pod.uid: pod for pod in pods}
            self._fault = ""
            self._tell()

    def put(self, pod: Pod) -> None:
        """Take one pod that is new or has changed."""
        with self._changed:
            self._pods[pod.uid] = pod
            self._tell()

    def remove(self, uid: str) -> None:
        """Forget a pod that is gone."""
        with self._changed:
            self._pods.pop(uid, None)
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

    def read(self) -> tuple[tuple[Pod, ...], str, int]:
        """Return the pods, the fault and a number that changes with them."""
        with self._changed:
            return tuple(self._pods.values()), self._fault, self._version

    def wait(self, version: int, timeout_s: float) -> None:
        """Wait until something has changed since ``version``, but not for ever."""
        with self._changed:
            if self._version == version:
                self._changed.wait(timeout_s)


class PodSource(Protocol):
    """Keeps a store up to date."""

    def look(self, store: PodStore) -> None:
        """Fill the store once.

        Raises:
            PodsError: If the pods cannot be looked up.
        """

    def run(self, store: PodStore, ended: threading.Event) -> None:
        """Follow the pods until ``ended``; what fails is noted in the store and tried again."""
