"""A service whose loop is the test."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any
from unittest import mock

from stallward.actuator.ipc.channels import frame_status, frame_tick
from stallward.actuator.ipc.options import Modules, ServiceOptions
from stallward.actuator.runtime.process_start import command_line
from stallward.actuator.service import policy_servicer
from stallward.actuator.service.server import main
from stallward.proto.v1 import stallward_pb2 as pb

WAIT_S = 30.0
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["stallward.actuator.service.server"])


class Service:
    """A service without a loop; the test sends what a loop would.

    It is a process of its own, forked from one that has imported everything already: that takes
    0.3 s of processor time. Its messages go to a file beside its socket.

    Args:
        folder: Where its sockets are.
        tries: Whether it tries policies that are pushed; otherwise it takes any content for one.
        options: Other options of its process.
    """

    def __init__(self, folder: Path, *, tries: bool = False, **options: object) -> None:
        self._tries = tries
        self.socket, self.report_socket = folder / "s", folder / "r"
        self.loop, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.latencies, feed = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        life, self.life = os.pipe()
        with theirs, feed, ExitStack() as stack:
            stack.callback(os.close, life)
            self._start(
                ServiceOptions(
                    socket=self.socket,
                    command_fd=theirs.fileno(),
                    life_fd=life,
                    silence_s=60.0,
                    latency_fds=(feed.fileno(),),
                    latency_source="grpc",
                    slo_ms=60.0,
                    **options,  # type: ignore[arg-type]
                )
            )

    def _start(self, options: ServiceOptions) -> None:
        ends = (options.command_fd, options.latency_fds[0], options.life_fd)
        arguments = (Path.cwd(), options, self._tries, *map(_Duplicate, ends))
        self._forked = _FORKS.Process(target=_serve, args=arguments, daemon=True)
        self._forked.start()

    def tick(self, sequence: int = 1) -> None:
        """Send a record and a status, as a loop does."""
        self.loop.send(frame_tick(pb.TickRecord(sequence=sequence).SerializeToString()))
        status = pb.StatusResponse(missing=["io_max: no disk"])
        self.loop.send(frame_status(status.SerializeToString()))

    def is_alive(self) -> bool:
        return self._forked.is_alive()

    def kill(self) -> None:
        self._forked.kill()
        self._forked.join(WAIT_S)

    def close(self) -> None:
        os.close(self.life)
        self._end()
        for end in (self.loop, self.latencies):
            end.close()

    def _end(self) -> None:
        self.kill()
        self._forked.close()


class ServiceProcess(Service):
    """A service that is started, and ends, as the guardian's does."""

    def _start(self, options: ServiceOptions) -> None:
        self.process = subprocess.Popen(
            command_line(Modules().service, options),
            pass_fds=(options.command_fd, options.latency_fds[0], options.life_fd),
            stderr=subprocess.PIPE,
            text=True,
        )

    def _end(self) -> None:
        self.process.communicate(timeout=WAIT_S)


class _Duplicate:
    """A descriptor that the forked process gets."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __getstate__(self) -> Any:
        return DupFd(self.number)

    def __setstate__(self, duplicate: Any) -> None:
        self.number = duplicate.detach()


def _serve(folder: Path, options: ServiceOptions, tries: bool, *ends: _Duplicate) -> None:
    if not tries:
        mock.patch.object(policy_servicer, "try_policy").start()
    os.chdir(folder)
    messages = os.open(options.socket.with_suffix(".messages"), os.O_WRONLY | os.O_CREAT)
    os.dup2(messages, 2)
    command, latency, life = (end.number for end in ends)
    raise SystemExit(
        main(replace(options, command_fd=command, latency_fds=(latency,), life_fd=life))
    )
