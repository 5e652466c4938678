"""What a client on another machine may do, by the names in its certificate.

Every client with a certificate of the configured authorities may observe. Only those that are
named as operators may change something. A call that is not known to change nothing counts as one
that does. Each certificate, and each role, has a number of calls that may be open at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc

from stallward.actuator.service.callers import Context, names_of
from stallward.actuator.service.refused.refusals import Refusals
from stallward.actuator.service.refused.well_formed import Continue
from stallward.actuator.service.report_servicer import SERVICE

if TYPE_CHECKING:
    from stallward.actuator.service.refused.well_formed import Handler


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
                await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
            if not operator and method not in OBSERVING:
                call = method.rpartition("/")[2]
                why = (
                    f"{who} may observe, and {call} changes something. An administrator of the "
                    "node may add the name to operators under [remote]."
                )
                await self._refuse(context, grpc.StatusCode.PERMISSION_DENIED, why)
            yield

    async def _request(self, requests: AsyncIterator[Any], context: Context) -> Any:
        """The message of a call that has one."""
        try:
            return await asyncio.wait_for(anext(requests), REQUEST_S)
        except TimeoutError:
            why = f"The message of the call did not come within {REQUEST_S:g} s."
            await self._refuse(context, grpc.StatusCode.DEADLINE_EXCEEDED, why)
        except StopAsyncIteration:
            why = "The call has no message."
            await self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, why)

    async def _refuse(self, context: Context, code: grpc.StatusCode, why: str) -> NoReturn:
        self._refusals.note(code.name, why, context.peer())
        await context.abort(code, why)
        raise AssertionError  # abort raises
