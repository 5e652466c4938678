"""A service process whose loop is the test."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from stallward.actuator.ipc.channels import frame_status, frame_tick
from stallward.actuator.ipc.options import Modules, ServiceOptions
from stallward.actuator.runtime.process_start import command_line
from stallward.proto.v1 import stallward_pb2 as pb

WAIT_S = 30.0


def free_port() -> int:
    """A port on which nothing listens now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Service:
    """A service without a loop; the test sends what a loop would."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.socket, self.report_socket = folder / "s", folder / "r"
        self.loop, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.latencies, feed = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        life, self.life = os.pipe()
        made = ServiceOptions(
            socket=self.socket,
            command_fd=theirs.fileno(),
            life_fd=life,
            silence_s=60.0,
            latency_fd=feed.fileno(),
            latency_source="grpc",
            slo_ms=60.0,
            **options,  # type: ignore[arg-type]
        )
        self.process = subprocess.Popen(
            command_line(Modules().service, made),
            pass_fds=(theirs.fileno(), feed.fileno(), life),
            stderr=subprocess.PIPE,
            text=True,
        )
        for end in (theirs, feed):
            end.close()
        os.close(life)

    def tick(self, sequence: int = 1) -> None:
        """Send a record and a status, as a loop does."""
        self.loop.send(frame_tick(pb.TickRecord(sequence=sequence).SerializeToString()))
        status = pb.StatusResponse(missing=["io_max: no disk"])
        self.loop.send(frame_status(status.SerializeToString()))

    def close(self) -> None:
        os.close(self.life)
        self.process.communicate(timeout=WAIT_S)
        for end in (self.loop, self.latencies):
            end.close()
