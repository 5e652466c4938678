"""A daemon on another machine, and the certificates with which it is reached."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import grpc

from stallward.actuator.errors import ConfigError
from stallward.actuator.runtime.addresses import is_remote

AUTHORITY_FILE = "ca.pem"
CERTIFICATE_FILE = "client.pem"
KEY_FILE = "client.key"
TLS_VARIABLE: Final = "STALLWARD_TLS"
"""The environment variable that names the folder of the client's certificates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteDaemon:
    """Where a daemon listens for other machines, and what is needed to talk to it."""

    address: str
    """``HOST:PORT``; the daemon's certificate must be for this host, unless
    ``server_name`` is given."""
    authority: Path
    """The authorities whose certificate the daemon must show, as PEM."""
    certificate: Path
    """The client's own certificate, as PEM."""
    key: Path
    """Its private key, as PEM."""
    server_name: str = ""
    """The name that its certificate must be for; empty for the host of the address."""
    silence_s: float = 30.0
    """After how long without a sign of life the connection counts as broken, at least 0.3. A
    network that fails closes no connection, so a watcher would wait for ever."""

    @classmethod
    def with_folder(cls, address: str, folder: Path, server_name: str = "") -> Self:
        """A daemon for which a folder holds ``ca.pem``, ``client.pem`` and ``client.key``."""
        return cls(
            address=address,
            server_name=server_name,
            authority=folder / AUTHORITY_FILE,
            certificate=folder / CERTIFICATE_FILE,
            key=folder / KEY_FILE,
        )

    def credentials(self) -> grpc.ChannelCredentials:
        """The credentials of a connection.

        Raises:
            ConfigError: If a file cannot be read.
        """
        authority, certificate, key = map(self._read, (self.authority, self.certificate, self.key))
        return grpc.ssl_channel_credentials(authority, key, certificate)

    def __str__(self) -> str:
        return self.address

    def _read(self, file: Path) -> bytes:
        try:
            return file.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{file} cannot be read ({error.strerror}); it is needed for {self.address}.",
                next_step=f"Name the folder with {AUTHORITY_FILE}, {CERTIFICATE_FILE} and "
                f"{KEY_FILE} in {TLS_VARIABLE}.",
            ) from error


def daemon_at(address: str, tls: Path | None = None, server_name: str = "") -> Path | RemoteDaemon:
    """The daemon at an address.

    Args:
        address: The path of a Unix socket, or ``HOST:PORT`` of another machine's daemon.
        tls: The folder of the client's certificates for such a daemon; ``None`` for that which
            the environment variable ``STALLWARD_TLS`` names.
        server_name: The name that its certificate must be for; empty for the host.

    Raises:
        ConfigError: If the daemon is on another machine and no certificates are named.
    """
    if not is_remote(address):
        return Path(address)
    folder = tls or Path(os.environ.get(TLS_VARIABLE, ""))
    if folder == Path():
        raise ConfigError(
            f"{address} is on another machine, which asks for a certificate.",
            next_step=f"Name the folder with {AUTHORITY_FILE}, {CERTIFICATE_FILE} and {KEY_FILE} "
            f"in {TLS_VARIABLE}.",
        )
    return RemoteDaemon.with_folder(address, folder, server_name)
