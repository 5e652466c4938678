"""Nodes that tick by themselves, with a latency that depends on what decides."""

from __future__ import annotations

import threading
from pathlib import Path

from policy_loop import Loop
from service_without_loop import WAIT_S, Service

from stallward.actuator.client import ActuatorClient, Mode
from stallward.actuator.config.tables import PolicyConfig
from stallward.proto.v1 import stallward_pb2 as pb

TICK_S = 0.01
GOOD_MS, BAD_MS = 10.0, 500.0
"""Below and above the target of the service."""
OLD = b"old"


class RollingNode:
    """A service and a loop that goes on by itself; the old policy decides at first.

    Args:
        folder: Where everything of it is.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.bad: bytes | None = None
        """The content of a policy under which the target is not kept."""
        self._start()
        old = folder / "old.onnx"
        old.write_bytes(OLD)
        with ActuatorClient(self.service.socket) as client:
            client.wait_ready(WAIT_S)
            client.load(str(old))
            client.set_mode(Mode.ACTIVE)

    def _start(self) -> None:
        self.service = Service(self.folder, policy_store=self.folder / "store")
        self.loop = Loop(self.service)
        self.loop.places = PolicyConfig(store=self.folder / "store")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._thread.start()

    def _tick(self) -> None:
        second = 1
        while not self._ended.wait(TICK_S):
            status = self.loop.status
            decides = Path(status.policy.path) if status.mode == pb.MODE_ACTIVE else None
            is_bad = decides is not None and decides.read_bytes() == self.bad
            second += 1
            try:
                self.loop.send_second(second, p95_ms=BAD_MS if is_bad else GOOD_MS)
            except OSError:
                return

    @property
    def decides(self) -> bytes | None:
        """The content of the policy that decides; ``None`` for the default controller."""
        status = self.loop.status
        if status.mode != pb.MODE_ACTIVE:
            return None
        return Path(status.policy.path).read_bytes()

    def stop(self) -> None:
        """End the service and its loop: the node does not answer any more."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join(WAIT_S)
            self.loop.end()
            self.service.close()
