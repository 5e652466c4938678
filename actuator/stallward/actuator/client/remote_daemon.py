"""A daemon on another machine, and the certificates with which it is reached."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc

from stallward.actuator.errors import ConfigError

AUTHORITY_FILE = "ca.pem"
CERTIFICATE_FILE = "client.pem"
KEY_FILE = "client.key"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteDaemon:
    """Where a daemon listens for other machines, and what is needed to talk to it."""

    address: str
    """``HOST:PORT``; the daemon's certificate must be for this host."""
    authority: Path
    """The authorities whose certificate the daemon must show, as PEM."""
    certificate: Path
    """The client's own certificate, as PEM."""
    key: Path
    """Its private key, as PEM."""

    @classmethod
    def with_folder(cls, address: str, folder: Path) -> Self:
        """A daemon for which a folder holds ``ca.pem``, ``client.pem`` and ``client.key``."""
        return cls(
            address=address,
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
                f"{KEY_FILE} in STALLWARD_TLS.",
            ) from error
