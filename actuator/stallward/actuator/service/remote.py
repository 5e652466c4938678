"""The service for other machines: its TCP port, and what each client may do there.

The port speaks mutual TLS only.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health, health_pb2_grpc

from stallward.actuator.errors import DaemonError
from stallward.actuator.ipc.options import ServiceOptions
from stallward.actuator.runtime.socket_options import keepalive_options
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.service.callers import Context, names_of
from stallward.actuator.service.doors import Door
from stallward.actuator.service.refused import Continue, Refusals, WellFormed
from stallward.actuator.service.report_servicer import SERVICE, ReportServicer
from stallward.actuator.service.socket_files import Listener
from stallward.agent.believed_file import MOST_PEM_BYTES, read_believed
from stallward.agent.errors import UnbelievedFileError
from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    from stallward.actuator.service.refused import Handler


# ---------- What a client on another machine may do, by the names in its certificate
# Every client with a certificate of the configured authorities may observe. Only those that are
# named as operators may change something. A call that is not known to change nothing counts as one
# that does. Each certificate, and each role, has a number of calls that may be open at once.

# ---------- How many calls a certificate may have open at once, so that none takes the places of others

MOST_OF_OBSERVER: Final = 64
"""The most calls at once with one certificate that may observe."""
MOST_OF_OPERATOR: Final = 128
"""The same of one that may change something."""
MOST_OF_OBSERVERS: Final = 192
"""The most calls of all observers together. It leaves operators room to watch, too: the clients
that watch by the port are 256 at most."""
MOST_OF_OPERATORS: Final = 320
"""The most calls of all operators together."""


class TooManyCallsError(Exception):
    """Raised when a certificate, or all of its role, have too many calls open."""


class CallBudget:
    """Counts the calls that are open. The event loop's thread uses it."""

    def __init__(self) -> None:
        self._by_name: Counter[str] = Counter()
        self._by_role: Counter[bool] = Counter()

    @contextlib.contextmanager
    def call(self, name: str, *, operator: bool) -> Iterator[None]:
        """Count one call until the block ends.

        Args:
            name: The names in the client's certificate.
            operator: Whether it may change something.

        Raises:
            TooManyCallsError: If it is one too many.
        """
        of_one = MOST_OF_OPERATOR if operator else MOST_OF_OBSERVER
        of_role = MOST_OF_OPERATORS if operator else MOST_OF_OBSERVERS
        if self._by_name[name] >= of_one:
            raise TooManyCallsError(f"{name} has {of_one} calls open already.")
        if self._by_role[operator] >= of_role:
            role = "operators" if operator else "observers"
            raise TooManyCallsError(f"All {role} together have {of_role} calls open already.")
        self._by_name[name] += 1
        self._by_role[operator] += 1
        try:
            yield
        finally:
            self._by_role[operator] -= 1
            self._by_name[name] -= 1
            if not self._by_name[name]:
                del self._by_name[name]  # there may be any number of certificates in time


OBSERVING: Final = frozenset(
    {
        f"/{SERVICE}/Status",
        f"/{SERVICE}/Watch",
        f"/{SERVICE}/Advise",
        f"/{SERVICE}/ListPolicies",
        f"/{SERVICE}/GetExperiment",
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
    }
)
"""The calls that change nothing."""
REQUEST_S: Final = 5.0
"""How long the message of a call may take that has one; it has its place meanwhile."""
_STOP_S: Final = 0.2
_PINGS_APART_MS: Final = 500
"""How often a client may ask for a sign of life; gRPC hangs up on one that asks more often."""


class Roles(grpc.aio.ServerInterceptor):
    """Refuses calls that a client's certificate does not allow, and one call too many.

    Args:
        operators: The names that may change something.
        refusals: Takes the refused calls.
    """

    def __init__(self, operators: Iterable[str], refusals: Refusals) -> None:
        self._operators = frozenset(operators)
        self._refusals = refusals
        self._budget = CallBudget()

    async def intercept_service(
        self, continuation: Continue, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Return the handler of a call, which checks the client first.

        It takes every call as one with a stream of messages, since gRPC asks it about those at
        once, and about others when their message is there: a client that sends none would have a
        place that nobody counts.
        """
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        streaming = handler.request_streaming
        kind = ("stream" if streaming else "unary", "stream" if handler.response_streaming else "")
        behaviour: Any = getattr(handler, f"{kind[0]}_{kind[1] or 'unary'}")
        method = handler_call_details.method

        async def answer(requests: AsyncIterator[Any], context: Context) -> Any:
            async with self._admitted(method, context):
                request = requests if streaming else await self._request(requests, context)
                return await behaviour(request, context)

        async def stream(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            async with self._admitted(method, context):
                request = requests if streaming else await self._request(requests, context)
                async with contextlib.aclosing(behaviour(request, context)) as responses:
                    async for response in responses:
                        yield response

        make: Any = (
            grpc.stream_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        made: Handler = make(
            stream if inspect.isasyncgenfunction(behaviour) else answer,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
        return made

    @contextlib.asynccontextmanager
    async def _admitted(self, method: str, context: Context) -> AsyncIterator[None]:
        """A place for a call until the block ends, if there is one and it is allowed."""
        names = names_of(context.auth_context())
        who = ", ".join(sorted(names)) or "a certificate without a name"
        operator = bool(names & self._operators)
        with contextlib.ExitStack() as place:
            try:
                place.enter_context(self._budget.call(who, operator=operator))
            except TooManyCallsError as error:
                await self._refusals.refuse(
                    context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
                )
            if not operator and method not in OBSERVING:
                call = method.rpartition("/")[2]
                why = (
                    f"{who} may observe, and {call} changes something. An administrator of the "
                    "node may add the name to operators under [remote]."
                )
                await self._refusals.refuse(context, grpc.StatusCode.PERMISSION_DENIED, why)
            yield

    async def _request(self, requests: AsyncIterator[Any], context: Context) -> Any:
        """The message of a call that has one."""
        try:
            async with asyncio.timeout(REQUEST_S):
                return await anext(requests)
        except TimeoutError:
            why = f"The message of the call did not come within {REQUEST_S:g} s."
            await self._refusals.refuse(context, grpc.StatusCode.DEADLINE_EXCEEDED, why)
        except StopAsyncIteration:
            why = "The call has no message."
            await self._refusals.refuse(context, grpc.StatusCode.INVALID_ARGUMENT, why)


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
        options: The options of the service, which name the port and its certificates.
        door: How much its clients may hold.
        servicer: Answers the calls.
        health_servicer: Answers whether the service is well.

    Raises:
        DaemonError: If the options ask for one without mutual TLS, which the configuration refuses.
    """

    def __init__(
        self,
        options: ServiceOptions,
        door: Door,
        servicer: ReportServicer,
        health_servicer: health.aio.HealthServicer,
    ) -> None:
        super().__init__()
        certificate, key = options.remote_certificate, options.remote_key
        client_ca = options.remote_client_ca
        if certificate is None or key is None or client_ca is None:
            raise DaemonError(f"{options.remote} is not served without mutual TLS.")
        self._options = options
        self._certificates = Certificates(key, certificate, client_ca)
        self._door = door
        self._servicer = servicer
        self._health = health_servicer
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Start to listen.

        Raises:
            DaemonError: If a file cannot be read or does not fit, or the port is taken.
        """
        refusals = self._servicer.refusals
        server = grpc.aio.server(
            interceptors=(Roles(self._options.remote_operators, refusals), WellFormed(refusals)),
            options=(
                *self._door.options(),
                *keepalive_options(self._options.remote_silence_s),
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
            server.add_secure_port(self._options.remote, credentials)
            await server.start()
        except (RuntimeError, ValueError) as error:
            raise DaemonError(
                f"{self._options.remote} cannot be served with the certificates of [remote] ({error}).",
                next_step="Check that the address is free and that key and certificate fit.",
            ) from error
        self._server = server

    async def stop(self) -> None:
        """Close the port."""
        if self._server is not None:
            await self._server.stop(_STOP_S)
