"""Nodes that serve other machines by mutual TLS, and a network between that may fail."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from free_port import free_port
from service_without_loop import WAIT_S, Service

from stallward.actuator.client import RemoteDaemon


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """The certificates of a node and of its clients."""

    folder: Path
    ca: trustme.CA
    port: int

    def client(self, name: str, ca: trustme.CA | None = None) -> RemoteDaemon:
        """A client whose certificate has a common name."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        made = (ca or self.ca).issue_cert(f"{name}.example", common_name=name)
        self.ca.cert_pem.write_to_path(folder / "ca.pem")
        made.cert_chain_pems[0].write_to_path(folder / "client.pem")
        made.private_key_pem.write_to_path(folder / "client.key")
        return RemoteDaemon.with_folder(f"127.0.0.1:{self.port}", folder)

    def certify(self) -> None:
        """Write a new certificate of the node."""
        made = self.ca.issue_cert("127.0.0.1")
        made.private_key_pem.write_to_path(self.folder / "node.key")
        made.cert_chain_pems[0].write_to_path(self.folder / "node.pem")

    def serve(
        self, operators: tuple[str, ...] = (), kind: type[Service] = Service, **options: Any
    ) -> Service:
        """Start the service of the node on its port."""
        return kind(
            self.folder,
            **options,
            remote=f"127.0.0.1:{self.port}",
            remote_certificate=self.folder / "node.pem",
            remote_key=self.folder / "node.key",
            remote_client_ca=self.folder / "clients.pem",
            remote_operators=operators,
        )


def make_party(folder: Path, ca: trustme.CA | None = None) -> Party:
    """Certify a node whose port is free now; its clients' authority is ``ca``, or a new one."""
    made = Party(folder=folder, ca=ca or trustme.CA(), port=free_port())
    made.ca.cert_pem.write_to_path(folder / "clients.pem")
    made.certify()
    return made


def wait_for_port(party: Party) -> None:
    """Wait until the node listens."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", party.port), timeout=WAIT_S).close()
        except OSError:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        else:
            return


class Network:
    """A connection's way to the port, which may fail without closing anything."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._failed = threading.Event()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def fail(self) -> None:
        """Carry nothing from now on."""
        self._failed.set()

    def close(self) -> None:
        """Close everything."""
        for end in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self._port))
                self._open += near, far
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not self._failed.is_set():
                    sink.sendall(data)
