"""A loop that loads any file as a policy, for tests of the service."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from pathlib import Path

from service_without_loop import WAIT_S, Service

from stallward.actuator.config.tables import PolicyConfig
from stallward.actuator.ipc.channels import frame_status, frame_tick
from stallward.actuator.loop.policy_file import find_policy_file
from stallward.actuator.policies.named_controller import digest_of, specification_of
from stallward.proto.v1 import stallward_pb2 as pb


class Loop(threading.Thread):
    """Answers the service as a loop does, and loads any file."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        self.connection = service.loop.dup()
        self.status = pb.StatusResponse(mode=pb.MODE_OFF)
        self.places = PolicyConfig()
        """Where it finds policies that were pushed."""
        self.unit = ""
        """The unit in which the only slot counts its work; empty for processor time."""
        self.applications: tuple[str, ...] = ()
        """The names of the applications, where there are several."""
        self.send_status()
        self.start()

    def send_status(self) -> None:
        self.connection.send(frame_tick(pb.TickRecord(sequence=1).SerializeToString()))
        self.connection.send(frame_status(self.status.SerializeToString()))

    def send_second(
        self,
        second: int,
        *,
        p95_ms: float | None,
        longest_ms: float | None = None,
        leased: bool = False,
        fallback: bool = False,
    ) -> None:
        record = pb.TickRecord(
            sequence=second, time_s=float(second), mode=self.status.mode, fallback=fallback
        )
        record.decision.leased = leased
        record.sample.slots.add(name="hog", cpu_usage_us=500_000 * second)
        if self.unit:
            record.sample.work.add(
                slot=0, unit=self.unit, units=3.0 * second, known_s=float(second)
            )
        record.sample.latency.completed_total = 5
        if p95_ms is not None:
            record.sample.latency.completed = 5
            record.sample.latency.p95_ms = p95_ms
            record.sample.latency.max_ms = p95_ms if longest_ms is None else longest_ms
            # Of several, none are those of all together.
            own = [record.sample.applications.add(name=name) for name in self.applications]
            for latency in [one.latency for one in own] or [record.sample.latency]:
                latency.new_requests.buckets.extend((300, 500))
                latency.new_requests.counts.extend((97, 3))
        self.connection.send(frame_tick(record.SerializeToString()))

    def end(self) -> None:
        with contextlib.suppress(OSError):  # the service is dead
            self.connection.shutdown(socket.SHUT_RDWR)
        self.join(WAIT_S)
        self.connection.close()

    def run(self) -> None:
        with contextlib.suppress(OSError):  # the test may end while an answer is sent
            self._answer()

    def _answer(self) -> None:
        while data := self.connection.recv(1 << 16):
            command = pb.Command.FromString(data)
            result = pb.CommandResult(id=command.id)
            if command.HasField("load"):
                named = command.load.path
                path = find_policy_file(named, self.places) or Path(named)
                specification = specification_of(command.load.path)
                if specification is None and not path.exists():
                    result.code, result.message = "NOT_FOUND", f"There is no policy {path}."
                    self.connection.send(pb.LoopMessage(result=result).SerializeToString())
                    continue
                sha256 = (
                    hashlib.sha256(path.read_bytes()).hexdigest()
                    if specification is None
                    else digest_of(specification)
                )
                self.status.policy.CopyFrom(
                    pb.PolicyStatus(name=path.stem, path=str(path), sha256=sha256)
                )
                self.status.mode = pb.MODE_OFF
                result.load.policy.CopyFrom(self.status.policy)
            else:
                self.status.mode = command.set_mode.mode
                result.set_mode.mode = command.set_mode.mode
            self.send_status()
            self.connection.send(pb.LoopMessage(result=result).SerializeToString())
