"""The service's side of the socket to the loop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from stallward.actuator.ipc.channels import MESSAGE_BYTES
from stallward.actuator.service.watchers import Watchers
from stallward.proto.v1 import stallward_pb2 as pb

MODES: Final = {
    "off": pb.MODE_OFF,
    "shadow": pb.MODE_SHADOW,
    "advice": pb.MODE_ADVICE,
    "active": pb.MODE_ACTIVE,
}
ANSWER_S: Final = 2.0
"""How long a call waits for the loop, where nothing else is said."""
LOAD_ANSWER_S: Final = 30.0
"""How long a call waits for a policy to be loaded."""


class LoopLink:
    """Sends commands to the loop and passes its tick records to watchers.

    It must be used in the event loop's thread.

    Args:
        connection: A SOCK_SEQPACKET socket to the loop.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.setblocking(False)
        # Ids never repeat, because answers to an earlier service that was killed may still arrive.
        self._ids = itertools.count(time.monotonic_ns())
        self._waiting: dict[int, asyncio.Future[pb.CommandResult | None]] = {}
        self.watchers = Watchers[pb.TickRecord]()
        """The clients that receive every tick record."""
        self._last_s = float("-inf")
        self.last: pb.TickRecord | None = None
        """The newest tick record."""
        self._status: tuple[float, pb.StatusResponse] | None = None
        self._has_status = asyncio.Event()
        self.listeners: list[Callable[[pb.TickRecord], None]] = []
        """Called with every tick record."""

    @property
    def silent_s(self) -> float:
        """The time since the last tick record arrived."""
        return time.monotonic() - self._last_s

    @property
    def policy(self) -> pb.PolicyStatus | None:
        """The loaded policy by the loop's last status; ``None`` if there is none."""
        if self._status is None or not self._status[1].HasField("policy"):
            return None
        return self._status[1].policy

    async def wait_for_status(self, timeout_s: float) -> None:
        """Wait until the loop has sent its status, for ``timeout_s`` at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._has_status.wait()

    def status(self) -> pb.StatusResponse | None:
        """The loop's last status, brought up to date; ``None`` while there is no loop."""
        if self._status is None:
            return None
        received_s, received = self._status
        age_s = time.monotonic() - received_s
        status = pb.StatusResponse()
        status.CopyFrom(received)
        status.uptime_s += age_s
        status.lease_remaining_s = max(status.lease_remaining_s - age_s, 0.0)
        status.lease_held = status.lease_held and status.lease_remaining_s > 0
        if self.last is not None:
            status.last_tick.CopyFrom(self.last)
            status.ticks = max(status.ticks, self.last.sequence + 1)
        return status

    async def ask(
        self, command: pb.Command, timeout_s: float = ANSWER_S
    ) -> pb.CommandResult | None:
        """Send a command; returns the loop's answer, or ``None`` if none comes in time."""
        command.id = next(self._ids)
        answer: asyncio.Future[pb.CommandResult | None]
        answer = asyncio.get_running_loop().create_future()
        self._waiting[command.id] = answer
        try:
            self._connection.send(command.SerializeToString())
            async with asyncio.timeout(timeout_s):
                return await answer
        except (OSError, TimeoutError):
            return None
        finally:
            del self._waiting[command.id]

    def receive(self) -> None:
        """Receive all messages that have arrived."""
        while True:
            try:
                data = self._connection.recv(MESSAGE_BYTES)
            except OSError:
                return
            if not data:
                return
            try:
                message = pb.LoopMessage.FromString(data)
            except DecodeError:  # dropped: the service must go on, and the command gets no answer
                continue
            if message.HasField("tick"):
                self._fan_out(message.tick)
            elif message.HasField("status"):
                self._status = (time.monotonic(), message.status)
                self._has_status.set()
            else:
                self._answer(message.result)

    def _answer(self, result: pb.CommandResult) -> None:
        # A result without an id is from the guardian: the loop died, and no answer will come.
        if not result.id:
            self._status = None
            self._has_status.clear()
        for command_id in [result.id] if result.id else list(self._waiting):
            waiting = self._waiting.get(command_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(result if result.id else None)

    def _fan_out(self, record: pb.TickRecord) -> None:
        self.last, self._last_s = record, time.monotonic()
        for listener in self.listeners:
            listener(record)
        self.watchers.send(record)
