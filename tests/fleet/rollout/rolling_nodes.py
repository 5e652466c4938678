"""Nodes that tick when they are told, with a latency that depends on what decides."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from policy_loop import Loop
from service_without_loop import WAIT_S, Service

from stallward.actuator.client import ActuatorClient, Mode
from stallward.actuator.config.tables import PolicyConfig
from stallward.proto.v1 import stallward_pb2 as pb

GOOD_MS, BAD_MS = 10.0, 500.0
"""Below and above the target of the service."""
OLD = b"old"


class RollingNode:
    """A service and a loop; the old policy decides at first.

    Args:
        folder: Where everything of it is.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.bad: bytes | None = None
        """The content of a policy under which the target is not kept."""
        self.service = Service(folder, policy_store=folder / "store")
        self.loop = Loop(self.service)
        self.loop.places = PolicyConfig(store=folder / "store")
        self._second = 1
        self._is_up = True
        old = folder / "old.onnx"
        old.write_bytes(OLD)
        with ActuatorClient(self.service.socket) as client:
            client.wait_ready(WAIT_S)
            client.load(str(old))
            client.set_mode(Mode.ACTIVE)

    def tick(self) -> None:
        """Send the next second, unless the node was stopped."""
        if not self._is_up:
            return
        status = self.loop.status
        decides = Path(status.policy.path) if status.mode == pb.MODE_ACTIVE else None
        is_bad = decides is not None and decides.read_bytes() == self.bad
        self._second += 1
        self.loop.send_second(self._second, p95_ms=BAD_MS if is_bad else GOOD_MS)

    @property
    def decides(self) -> bytes | None:
        """The content of the policy that decides; ``None`` for the default controller."""
        status = self.loop.status
        if status.mode != pb.MODE_ACTIVE:
            return None
        return Path(status.policy.path).read_bytes()

    def stop(self) -> None:
        """End the service and its loop: the node does not answer any more."""
        if self._is_up:
            self._is_up = False
            self.loop.end()
            self.service.close()


class NodesClock:
    """A clock of whoever looks at the nodes: while it sleeps, they tick."""

    def __init__(self, nodes: Iterable[RollingNode]) -> None:
        self._nodes = list(nodes)
        self._now_s = 0.0

    def monotonic(self) -> float:
        return self._now_s

    def time(self) -> float:
        return time.time()

    def sleep(self, length_s: float) -> None:
        self._now_s += length_s
        for node in self._nodes:
            node.tick()


@contextlib.contextmanager
def ticking(nodes: Iterable[RollingNode]) -> Iterator[None]:
    """Let the nodes tick by themselves, for a client that is another process."""
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(0.02):
            for node in nodes:
                node.tick()

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(WAIT_S)
