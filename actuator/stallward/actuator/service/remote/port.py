"""The service's TCP port for other machines, which speaks mutual TLS only."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

import grpc
from grpc_health.v1 import health, health_pb2_grpc

from stallward.actuator.errors import DaemonError
from stallward.actuator.ipc.options import ServiceOptions
from stallward.actuator.runtime.keepalive import keepalive_options
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.service.doors import Door
from stallward.actuator.service.listener import Listener
from stallward.actuator.service.refused.well_formed import WellFormed
from stallward.actuator.service.remote.roles import Roles
from stallward.actuator.service.report_servicer import ReportServicer
from stallward.agent.believed_file import MOST_PEM_BYTES, read_believed
from stallward.agent.errors import UnbelievedFileError
from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc

_STOP_S: Final = 0.2
_PINGS_APART_MS: Final = 500
"""How often a client may ask for a sign of life; gRPC hangs up on one that asks more often."""


class Certificates:
    """The files of the port, which are read again when they change, for renewed certificates.

    Args:
        files: The key, the certificate, and the authorities of clients.
    """

    def __init__(self, *files: Path) -> None:
        self._files = files
        self._seen: tuple[tuple[int, int], ...] = ()

    def read(self) -> grpc.ServerCertificateConfiguration:
        """Read the files.

        Raises:
            DaemonError: If one cannot be read, or others than root can have written it.
        """
        self._seen = self._state()  # before reading, so that no later change is missed
        texts = []
        for file in self._files:
            try:
                texts.append(read_believed(file, MOST_PEM_BYTES))
            except UnbelievedFileError as error:
                raise DaemonError(error.cause, next_step=error.next_step) from error
            except OSError as error:
                raise DaemonError(
                    f"{file} cannot be read ({error.strerror}).",
                    next_step="Correct [remote] in the configuration, or make the file.",
                ) from error
        key, certificate, client_ca = texts
        return grpc.ssl_server_certificate_configuration([(key, certificate)], client_ca)

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Read the files again if they have changed; gRPC calls this before each handshake.

        Returns:
            ``None`` to go on with what was read last, also while a file cannot be read or may not
            be believed.
        """
        if self._state() == self._seen:
            return None
        try:
            return self.read()
        except DaemonError as error:
            say(f"{error} The earlier certificates stay in force.", "service")
            return None

    def _state(self) -> tuple[tuple[int, int], ...]:
        states = []
        for file in self._files:
            try:
                status = file.stat()
            except OSError:
                states.append((0, 0))
            else:
                states.append((status.st_ino, status.st_ctime_ns))  # its owner and mode, too
        return tuple(states)


class RemotePort(Listener):
    """One TCP port with the whole service behind it.

    Args:
        address: Where to listen, ``HOST:PORT``.
        certificate: The daemon's certificate.
        key: Its key.
        client_ca: The authorities of clients' certificates.
        operators: The names in certificates that may change something.
        silence_s: After how long without a sign of life a client is gone.
        door: How much its clients may hold.
        servicer: Answers the calls.
        health_servicer: Answers whether the service is well.
    """

    def __init__(
        self,
        address: str,
        *,
        certificate: Path,
        key: Path,
        client_ca: Path,
        operators: tuple[str, ...],
        silence_s: float,
        door: Door,
        servicer: ReportServicer,
        health_servicer: health.aio.HealthServicer,
    ) -> None:
        super().__init__()
        self._address = address
        self._certificates = Certificates(key, certificate, client_ca)
        self._operators = operators
        self._silence_s = silence_s
        self._door = door
        self._servicer = servicer
        self._health = health_servicer
        self._server: grpc.aio.Server | None = None

    @classmethod
    def of(
        cls,
        options: ServiceOptions,
        door: Door,
        servicer: ReportServicer,
        health_servicer: health.aio.HealthServicer,
    ) -> Self | None:
        """The port that the options ask for; ``None`` if they do not.

        Raises:
            DaemonError: If they ask for one without mutual TLS, which the configuration refuses.
        """
        if not options.remote:
            return None
        certificate, key = options.remote_certificate, options.remote_key
        client_ca = options.remote_client_ca
        if certificate is None or key is None or client_ca is None:
            raise DaemonError(f"{options.remote} is not served without mutual TLS.")
        return cls(
            options.remote,
            certificate=certificate,
            key=key,
            client_ca=client_ca,
            operators=options.remote_operators,
            silence_s=options.remote_silence_s,
            door=door,
            servicer=servicer,
            health_servicer=health_servicer,
        )

    async def start(self) -> None:
        """Start to listen.

        Raises:
            DaemonError: If a file cannot be read or does not fit, or the port is taken.
        """
        refusals = self._servicer.refusals
        server = grpc.aio.server(
            interceptors=(Roles(self._operators, refusals), WellFormed(refusals)),
            options=(
                *self._door.options(),
                *keepalive_options(self._silence_s),
                ("grpc.http2.min_ping_interval_without_data_ms", _PINGS_APART_MS),
            ),
        )
        pb_grpc.add_ActuatorServiceServicer_to_server(self._servicer, server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        try:
            credentials = grpc.dynamic_ssl_server_credentials(
                self._certificates.read(),
                self._certificates.renewed,  # type: ignore[arg-type]  # None: nothing is new
                require_client_authentication=True,
            )
            server.add_secure_port(self._address, credentials)
            await server.start()
        except (RuntimeError, ValueError) as error:
            raise DaemonError(
                f"{self._address} cannot be served with the certificates of [remote] ({error}).",
                next_step="Check that the address is free and that key and certificate fit.",
            ) from error
        self._server = server

    async def stop(self) -> None:
        """Close the port."""
        if self._server is not None:
            await self._server.stop(_STOP_S)
