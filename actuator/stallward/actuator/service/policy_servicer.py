"""Answers the calls about policies: sending, listing, loading, activating and rolling back."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc

from stallward.actuator.errors import (
    DaemonError,
    PolicyDamagedError,
    PolicyDiskError,
    PolicyPartError,
    PolicyStoreError,
)
from stallward.actuator.policies.index import Activation, StoredPolicy
from stallward.actuator.policies.named_controller import digest_of, specification_of
from stallward.actuator.policies.store import PolicyStore
from stallward.actuator.policies.trial import TrialOptions, try_policy
from stallward.actuator.service.latency_reports import LatencyReports
from stallward.actuator.service.loop_link import ANSWER_S, LOAD_ANSWER_S, LoopLink
from stallward.actuator.service.refused import to_its_end
from stallward.actuator.service.report_servicer import ReportServicer
from stallward.agent.errors import PolicyError
from stallward.proto.codec import Codec
from stallward.proto.v1 import stallward_pb2 as pb

MAX_CHUNK_BYTES: Final = 1 << 20
RESTARTING: Final = "The loop does not answer: it is restarting. Try again in a second."
_NO_STORE: Final = "No folder for pushed policies is configured. Set store under [policy]."
_CODES: Final = (
    (PolicyPartError, grpc.StatusCode.FAILED_PRECONDITION),
    (PolicyDamagedError, grpc.StatusCode.DATA_LOSS),
    (PolicyDiskError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (DaemonError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (PolicyError, grpc.StatusCode.INVALID_ARGUMENT),
    (PolicyStoreError, grpc.StatusCode.INVALID_ARGUMENT),
)
_STORED_POLICY: Final = Codec(StoredPolicy, pb.StoredPolicy)
_Context = grpc.aio.ServicerContext[Any, Any]
_T = TypeVar("_T")


class PolicyServicer(ReportServicer):
    """Answers the calls about policies.

    Args:
        link: The connection to the loop.
        reports: Receives reported latencies, by application; see :class:`ReportServicer`.
        latency_source: The configured source of latencies; empty for none.
        store: The policies that were pushed; ``None`` if no folder for them is configured.
    """

    def __init__(
        self,
        link: LoopLink,
        reports: Mapping[str, LatencyReports] | None = None,
        latency_source: str = "",
        store: PolicyStore | None = None,
    ) -> None:
        super().__init__(reports, latency_source)
        self._link = link
        self._store = store
        self._pushing: set[str] = set()
        self._trying = asyncio.Lock()
        self._not_noted = ""
        """Why the last activation could not be noted; empty if it was."""

    async def PushOffset(  # noqa: N802 - gRPC's name
        self, request: pb.PushOffsetRequest, context: _Context
    ) -> pb.PushOffsetResponse:
        """How much of a policy is here."""
        store = await self._needed_store(context)
        received = await self._stored(context, lambda: store.received_bytes(request.sha256))
        return pb.PushOffsetResponse(received_bytes=received)

    async def PushPolicy(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.PushPolicyRequest], context: _Context
    ) -> pb.PushPolicyResponse:
        """Take a policy into the store, part by part, if it runs here."""
        store = await self._needed_store(context)
        sha256 = name = ""
        try:
            async for part in request_iterator:
                if not sha256:
                    name = part.name
                    sha256 = await self._begin_push(context, part.sha256)
                if len(part.chunk) > MAX_CHUNK_BYTES:
                    why = f"A part has {len(part.chunk)} bytes, more than {MAX_CHUNK_BYTES}."
                    await self.refusals.refuse(context, grpc.StatusCode.INVALID_ARGUMENT, why)
                await self._stored(context, _appending(store, sha256, part))
            await self._trying.acquire()  # one process, and its memory, at a time
        except BaseException:
            self._pushing.discard(sha256)
            raise
        # The process of a trial does not end with the call.
        policy = await to_its_end(
            context, lambda context: self._complete_push(context, store, sha256, name)
        )
        return pb.PushPolicyResponse(policy=_STORED_POLICY.to_wire(policy))

    async def _complete_push(
        self, context: _Context, store: PolicyStore, sha256: str, name: str
    ) -> StoredPolicy:
        """Try a policy and keep it; then the next one may be tried."""
        try:
            return await self._stored(
                context, lambda: store.complete(sha256, name, lambda path: _try(path, name))
            )
        finally:
            self._trying.release()
            self._pushing.discard(sha256)

    async def _begin_push(self, context: _Context, sha256: str) -> str:
        """Note that a policy is being sent; nobody else may send it meanwhile."""
        if sha256 in self._pushing:
            why = f"The policy {sha256[:12]} is being sent already."
            await self.refusals.refuse(context, grpc.StatusCode.ABORTED, why)
        self._pushing.add(sha256)
        return sha256

    async def ListPolicies(  # noqa: N802
        self, request: pb.ListPoliciesRequest, context: _Context
    ) -> pb.ListPoliciesResponse:
        """The policies in the store."""
        store = await self._needed_store(context)
        policies = await self._stored(context, store.policies)
        listed = pb.ListPoliciesResponse(policies=map(_STORED_POLICY.to_wire, policies))
        status = self._link.status()
        for one in listed.policies:
            one.loaded = status is not None and one.sha256 == status.policy.sha256
            one.active = one.loaded and status is not None and status.mode == pb.MODE_ACTIVE
        return listed

    async def RemovePolicy(  # noqa: N802
        self, request: pb.RemovePolicyRequest, context: _Context
    ) -> pb.RemovePolicyResponse:
        """Remove a policy from the store, unless it runs."""
        store = await self._needed_store(context)
        policy = await self._stored(context, lambda: store.find(request.policy))
        if policy is None:
            # An answer rather than a refusal: it does no harm, and is not counted.
            why = f"There is no policy {request.policy!r:.80} in the store."
            await context.abort(grpc.StatusCode.NOT_FOUND, why)
        status = self._link.status()
        runs = status is not None and status.mode not in {pb.MODE_OFF, pb.MODE_UNSPECIFIED}
        if status is not None and runs and status.policy.sha256 == policy.sha256:
            why = (
                f"The policy {policy.name} ({policy.sha256[:12]}) runs. Turn it off first, or roll "
                "back."
            )
            await self.refusals.refuse(context, grpc.StatusCode.FAILED_PRECONDITION, why)
        removed = await self._stored(context, lambda: store.remove(policy.sha256))
        return pb.RemovePolicyResponse(policy=_STORED_POLICY.to_wire(removed))

    async def Load(  # noqa: N802
        self, request: pb.LoadRequest, context: _Context
    ) -> pb.LoadResponse:
        """Load a policy; its mode is off at first."""
        await self._note_active()  # it may decide since the daemon was started
        return (await self._ask(context, timeout_s=LOAD_ANSWER_S, load=request)).load

    async def SetMode(  # noqa: N802
        self, request: pb.SetModeRequest, context: _Context
    ) -> pb.SetModeResponse:
        """Set the mode of the loaded policy: active, shadow, advice or off."""
        answer = (await self._ask(context, set_mode=request)).set_mode
        await self._note_active()
        return answer

    async def RollBack(  # noqa: N802
        self, request: pb.RollBackRequest, context: _Context
    ) -> pb.RollBackResponse:
        """Activate the policy that was active before this one, or turn the policy off."""
        return await to_its_end(context, self._roll_back)  # else no policy might decide

    async def _roll_back(self, context: _Context) -> pb.RollBackResponse:
        store = await self._needed_store(context)
        status = self._link.status()
        if status is None or status.mode != pb.MODE_ACTIVE:
            why = "No policy is active, so there is nothing to roll back."
            await self.refusals.refuse(context, grpc.StatusCode.FAILED_PRECONDITION, why)
        await self._note_active()
        active = status.policy.sha256
        earlier = await self._stored(context, lambda: store.before(active))
        loaded = None
        if earlier is None:
            await self._ask(context, set_mode=pb.SetModeRequest(mode=pb.MODE_OFF))
        else:
            loaded = await self._load_again(context, earlier)
            await self._ask(context, set_mode=pb.SetModeRequest(mode=pb.MODE_ACTIVE))
        await self._note(store.rolled_back, earlier)
        return pb.RollBackResponse(policy=loaded)

    async def forget(self, sha256: str) -> None:
        """Never roll back to a policy again: the canary turned it off."""
        if self._store is not None:
            await self._note(self._store.dropped, sha256)

    async def _note_active(self) -> None:
        """Note the policy that decides now, if one does."""
        status = self._link.status()
        if self._store is not None and status is not None and status.mode == pb.MODE_ACTIVE:
            await self._note(self._store.activated, status.policy.sha256, status.policy.path)

    async def _note(self, work: Callable[..., None], *values: object) -> None:
        """Write what happened. Where that cannot be written, it happened all the same."""
        try:
            await asyncio.to_thread(work, *values)
        except PolicyStoreError as error:
            self._not_noted = f"roll back: {error}"
        else:
            self._not_noted = ""

    async def _load_again(self, context: _Context, earlier: Activation) -> pb.PolicyStatus:
        """Load the policy of an activation, if its file is still the same."""
        specification = specification_of(earlier.path)
        if specification is not None:
            found: str | None = digest_of(specification)
        else:
            found = await asyncio.to_thread(_digest_of, Path(earlier.path))
        loaded = pb.PolicyStatus()
        if found == earlier.sha256:
            request = pb.LoadRequest(path=earlier.path)
            loaded = (await self._ask(context, timeout_s=LOAD_ANSWER_S, load=request)).load.policy
            found = loaded.sha256  # it may have been changed since it was looked at
        if found != earlier.sha256:
            state = "is not there any more" if found is None else "was changed"
            why = f"The earlier policy {earlier.path} {state}. Load another one."
            await self.refusals.refuse(context, grpc.StatusCode.FAILED_PRECONDITION, why)
        return loaded

    async def _needed_store(self, context: _Context) -> PolicyStore:
        if self._store is None:
            await self.refusals.refuse(context, grpc.StatusCode.FAILED_PRECONDITION, _NO_STORE)
        return self._store

    async def _stored(self, context: _Context, work: Callable[[], _T]) -> _T:
        """Do something with the store, on a thread because disks may be slow."""
        try:
            return await asyncio.to_thread(work)
        except (DaemonError, PolicyError, PolicyStoreError) as error:
            code = next(code for kind, code in _CODES if isinstance(error, kind))
            await self.refusals.refuse(context, code, str(error))

    async def _ask(
        self, context: _Context, *, timeout_s: float = ANSWER_S, **kind: Any
    ) -> pb.CommandResult:
        """Ask the loop; a call that it refuses is refused."""
        result = await self._link.ask(pb.Command(**kind), timeout_s)
        if result is None:
            await self.refusals.refuse(context, grpc.StatusCode.UNAVAILABLE, RESTARTING)
        if result.code:
            await self.refusals.refuse(context, grpc.StatusCode[result.code], result.message)
        return result


def _appending(store: PolicyStore, sha256: str, part: pb.PushPolicyRequest) -> Callable[[], int]:
    return lambda: store.append(sha256, part.offset, part.chunk)


def _try(path: Path, name: str) -> None:
    """Load a policy in a process of its own: this one interprets nothing that is in it.

    Raises:
        PolicyError: If it must not be loaded here; its sender knows it by its name.
        DaemonError: If that cannot be found out now.
    """
    try:
        try_policy(TrialOptions(path=path))
    except (DaemonError, PolicyError) as error:
        cause, next_step = (t.replace(str(path), name) for t in (error.cause, error.next_step))
        raise type(error)(cause, next_step=next_step) from error


def _digest_of(path: Path) -> str | None:
    """The digest of a file; ``None`` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
