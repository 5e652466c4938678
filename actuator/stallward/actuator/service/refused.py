"""Refused calls: counted and logged; and what no servicer can answer is refused.

gRPC itself would answer a message that cannot be read with UNKNOWN, as if the service were broken,
and tell nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError

from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.service.callers import Context
from stallward.agent.printable import printable

# ---------- Refused calls: each is counted, and logged as far as the log is not flooded

MOST_LINES: Final = 20
"""The most lines in a span of :data:`SPAN_S`; what is left out is counted in the next line."""
SPAN_S: Final = 60.0
_MOST_CHARACTERS: Final = 300
_say: Final = partial(say, name="service")


class Refusals:
    """Counts and logs refused calls.

    Args:
        log: Takes a line.
        clock: The time in seconds.
    """

    def __init__(
        self,
        log: Callable[[str], None] = _say,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts: Counter[str] = Counter()
        """Name of a status -> how many calls were refused with it."""
        self._log = log
        self._clock = clock
        self._since_s = clock()
        self._lines = 0
        self._left_out = 0

    def note(self, status: str, message: str, client: str) -> None:
        """Note one refused call.

        Args:
            status: The name of gRPC's status.
            message: Why it was refused. It may hold text of the client.
            client: Who called.
        """
        self.counts[status] += 1
        now_s = self._clock()
        if now_s - self._since_s >= SPAN_S:
            self._since_s, self._lines = now_s, 0
        if self._lines >= MOST_LINES:
            self._left_out += 1
            return
        more = f" ({self._left_out} more were not logged)" if self._left_out else ""
        self._lines, self._left_out = self._lines + 1, 0
        text = f"refused {client}: {status}: {message}"[:_MOST_CHARACTERS]
        self._log(printable(text) + more)  # a client cannot begin a line of its own in the log

    async def refuse(self, context: Context, code: grpc.StatusCode, why: str) -> NoReturn:
        """Note and abort a call."""
        self.note(code.name, why, context.peer())
        await context.abort(code, why)
        raise AssertionError  # abort raises


# ---------- Work that outlives its call: a call that is over must not be refused, or gRPC ends the process

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Outlived:
    """Stands in for the context of a call: a refusal is raised, not sent."""

    client: str

    def peer(self) -> str:
        """Who called."""
        return self.client

    async def abort(self, code: grpc.StatusCode, why: str) -> NoReturn:
        """Leave the refusal to whoever waits for the work."""
        raise _RefusedLaterError(code, why)


class _RefusedLaterError(Exception):
    """A refusal of a call that may be over."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        super().__init__(why)
        self.code, self.why = code, why


async def to_its_end(context: Context, work: Callable[[Context], Awaitable[_T]]) -> _T:
    """Do something to its end, even if the client goes away; nobody hears of a failure then.

    Args:
        context: The call.
        work: What is done, given a context through which it may refuse the call.
    """
    task = asyncio.ensure_future(work(cast("Context", _Outlived(context.peer()))))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        return await asyncio.shield(task)
    except _RefusedLaterError as refusal:
        await context.abort(refusal.code, refusal.why)
        raise AssertionError from refusal  # abort raises


# ---------- Refuses what no servicer can answer: messages that cannot be read, and calls that do not exist
# gRPC itself would answer a message that cannot be read with UNKNOWN, as if the service were broken,
# and tell nobody.

Continue = Callable[[grpc.HandlerCallDetails], Awaitable["Handler | None"]]
if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]

_MAKERS: Final[dict[tuple[bool, bool], Callable[..., Any]]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """What a message was, if it was none."""

    why: str


def prepared(
    handler: Handler, prepare: Callable[[Any, Context], Awaitable[Any]], read: Any = None
) -> Handler:
    """A handler that prepares a call before another one answers it.

    Args:
        handler: The handler that answers.
        prepare: Gets the request (or the iterator over requests) and the context, and returns what
            the handler gets as request. It may abort the call.
        read: Turns bytes into a message; that of the handler if not given.
    """
    kind = (handler.request_streaming, handler.response_streaming)
    names = ["stream" if streaming else "unary" for streaming in kind]
    behaviour = getattr(handler, "_".join(names))

    async def answer(request: Any, context: Context) -> Any:
        return await behaviour(await prepare(request, context), context)

    async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
        ready = await prepare(request, context)
        async with contextlib.aclosing(behaviour(ready, context)) as responses:
            async for response in responses:
                yield response

    made: Handler = _MAKERS[kind](
        stream if inspect.isasyncgenfunction(behaviour) else answer,
        request_deserializer=read or handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
    return made


class WellFormed(grpc.aio.ServerInterceptor):
    """Refuses, counts and logs calls that do not exist and messages that cannot be read.

    Args:
        refusals: Takes the refused calls.
    """

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals

    async def intercept_service(
        self, continuation: Continue, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        """Return the handler of a call."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return self._unknown(handler_call_details.method)
        parse: Any = handler.request_deserializer

        def read(content: bytes) -> Any:
            try:
                return parse(content)
            except DecodeError as error:
                return _Unreadable(str(error))

        streaming = handler.request_streaming

        async def prepare(request: Any, context: Context) -> Any:
            if streaming:
                return self._each(request, context)
            return await self._readable(request, context)

        return prepared(handler, prepare, read)

    async def _each(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        async for request in requests:
            yield await self._readable(request, context)

    async def _readable(self, request: Any, context: Context) -> Any:
        if isinstance(request, _Unreadable):
            code = grpc.StatusCode.INVALID_ARGUMENT
            await self._refusals.refuse(
                context, code, f"The message cannot be read: {request.why}."
            )
        return request

    def _unknown(self, method: str) -> Handler:
        async def refuse(_requests: Any, context: Context) -> NoReturn:
            why = f"There is no call {method}."
            await self._refusals.refuse(context, grpc.StatusCode.UNIMPLEMENTED, why)

        # Of a stream: it need not wait for a message.
        made: Handler = grpc.stream_unary_rpc_method_handler(refuse)
        return made
