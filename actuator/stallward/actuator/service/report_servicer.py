"""Answers the call Report, by which an application gives its latencies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

import grpc

from stallward.actuator.service.callers import Context
from stallward.actuator.service.latency_reports import (
    MAX_REQUESTS,
    MAX_STREAMS,
    LatencyReports,
    ReportStream,
    TooManyStreamsError,
)
from stallward.actuator.service.refused import Refusals
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc

SERVICE: Final = "stallward.proto.v1.ActuatorService"


class ReportServicer(pb_grpc.ActuatorServiceServicer):
    """Answers Report. A refused call gets the reason and is counted.

    Args:
        reports: Receives the reported latencies of each application by its name; where there is
            one, its name is empty. Without an entry an application's come from elsewhere.
        latency_source: The configured source of latencies; empty for none.
    """

    def __init__(
        self, reports: Mapping[str, LatencyReports] | None = None, latency_source: str = ""
    ) -> None:
        self._reports = reports or {}
        self._latency_source = latency_source
        self.refusals = Refusals()

    async def Report(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[pb.ReportRequest],
        context: Context,
    ) -> pb.ReportResponse:
        """Receive the protected application's latencies, message by message."""
        if not self._reports:
            now = self._latency_source or "nowhere"
            why = f"Latencies come from {now!r} here. Set source = 'grpc' under [latency]."
            await self.refusals.refuse(context, grpc.StatusCode.FAILED_PRECONDITION, why)
        first = await anext(aiter(request_iterator), None)
        if first is None:
            return pb.ReportResponse()
        reports = self._reports.get(first.application)
        if reports is None:
            known = ", ".join(map(repr, self._reports))
            why = f"No application {first.application!r} reports here; those that do: {known}."
            await self.refusals.refuse(context, grpc.StatusCode.INVALID_ARGUMENT, why)
        try:
            with reports.stream() as stream:
                await self._take(first, reports, stream, context)
                async for request in request_iterator:
                    await self._take(request, reports, stream, context)
                return stream.response()
        except TooManyStreamsError:
            why = f"{MAX_STREAMS} clients report already."
            await self.refusals.refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, why)

    async def _take(
        self,
        request: pb.ReportRequest,
        reports: LatencyReports,
        stream: ReportStream,
        context: Context,
    ) -> None:
        """Receive one message."""
        if len(request.requests) > MAX_REQUESTS:
            why = f"{len(request.requests)} requests in a message, max {MAX_REQUESTS}."
            await self.refusals.refuse(context, grpc.StatusCode.INVALID_ARGUMENT, why)
        stream.take(request)
        await reports.give_way(stream)


def add_report_only(servicer: ReportServicer, server: grpc.aio.Server) -> None:
    """Make a server answer Report, and no other call of the service."""
    handler = grpc.stream_unary_rpc_method_handler(
        servicer.Report,
        request_deserializer=pb.ReportRequest.FromString,
        response_serializer=pb.ReportResponse.SerializeToString,
    )
    generic = grpc.method_handlers_generic_handler(SERVICE, {"Report": handler})
    server.add_generic_rpc_handlers((generic,))
