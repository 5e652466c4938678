"""What a client on another machine may do, by the names in its certificate.

Every client with a certificate of the configured authorities may observe. Only those that are
named as operators may change something. A call that is not known to change nothing counts as one
that does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import grpc

from stallward.actuator.service.refused.refusals import Refusals
from stallward.actuator.service.refused.well_formed import Context, Continue, prepared
from stallward.actuator.service.report_servicer import SERVICE

if TYPE_CHECKING:
    from stallward.actuator.service.refused.well_formed import Handler

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
_NAMES: Final = ("x509_common_name", "x509_subject_alternative_name")


def names_of(auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[str]:
    """The names in a client's certificate, by the context of its connection."""
    return frozenset(
        name.decode("utf-8", "replace") for key in _NAMES for name in auth_context.get(key, ())
    )


class Roles(grpc.aio.ServerInterceptor):
    """Refuses calls that a client's certificate does not allow.

    Args:
        operators: The names that may change something.
        refusals: Takes the refused calls.
    """

    def __init__(self, operators: Iterable[str], refusals: Refusals) -> None:
        self._operators = frozenset(operators)
        self._refusals = refusals

    async def intercept_service(
        self, continuation: Continue, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Return the handler of a call, which checks the role first."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method in OBSERVING:
            return handler
        call = method.rpartition("/")[2]

        async def prepare(request: Any, context: Context) -> Any:
            await self._check(call, context)
            return request

        return prepared(handler, prepare)

    async def _check(self, call: str, context: Context) -> None:
        names = names_of(context.auth_context())
        if names & self._operators:
            return
        who = ", ".join(sorted(names)) or "a certificate without a name"
        code = grpc.StatusCode.PERMISSION_DENIED
        self._refusals.note(code.name, f"{call} by {who}", context.peer())
        await context.abort(
            code,
            f"{who} may observe, and {call} changes something. An administrator of the node may "
            "add the name to operators under [remote].",
        )
