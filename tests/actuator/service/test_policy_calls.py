"""Policies are pushed, listed, activated and rolled back over the service's socket."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
import pytest
from policy_files import metadata, write_policy
from policy_loop import Loop
from service_without_loop import WAIT_S, Service

from stallward.actuator.client import ActuatorClient, Mode
from stallward.actuator.errors import DaemonError, RequestError
from stallward.actuator.ipc.channels import frame_tick
from stallward.actuator.policies.store import PolicyStore
from stallward.actuator.service import policy_servicer
from stallward.actuator.service.policy_servicer import PolicyServicer
from stallward.agent.controllers.policy_file import MAX_POLICY_BYTES
from stallward.agent.errors import PolicyError
from stallward.agent.observation.encoder import BASIC
from stallward.evaluation.cli import main
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc

CONTENT = bytes(range(256)) * 3000
"""Three parts."""


@pytest.fixture
def client(tmp_path: Path, start: Callable[..., Service]) -> Iterator[ActuatorClient]:
    service = start(policy_store=tmp_path / "store")
    loop = Loop(service)
    with ActuatorClient(service.socket) as made:
        made.wait_ready(WAIT_S)
        yield made
    loop.end()


def policy_file(folder: Path, content: bytes, name: str = "mine.onnx") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def stored_file(tmp_path: Path, content: bytes) -> Path:
    return tmp_path / "store/versions" / f"{hashlib.sha256(content).hexdigest()}.onnx"


def activate(client: ActuatorClient, path: Path) -> str:
    client.load(str(path))
    client.set_mode(Mode.ACTIVE)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_pushed_policy_is_stored_and_listed(client: ActuatorClient, tmp_path: Path) -> None:
    pushed = client.push(policy_file(tmp_path, CONTENT), name="november")
    assert (pushed.name, pushed.size_bytes) == ("november", len(CONTENT))
    assert client.policies() == (pushed,)
    assert stored_file(tmp_path, CONTENT).read_bytes() == CONTENT
    again = client.push(tmp_path / "mine.onnx", name="december")
    assert client.policies() == (again,)


def test_an_upload_that_broke_off_goes_on(client: ActuatorClient, tmp_path: Path) -> None:
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    half = pb.PushPolicyRequest(sha256=sha256, name="mine", chunk=CONTENT[:1000])

    def broken() -> Iterator[pb.PushPolicyRequest]:
        yield half
        call.cancel()
        yield half

    with grpc.insecure_channel(f"unix:{client.daemon}") as channel:
        stub = pb_grpc.ActuatorServiceStub(channel)  # type: ignore[no-untyped-call]
        call = stub.PushPolicy.future(iter([half]), timeout=WAIT_S)
        with pytest.raises(grpc.RpcError) as raised:
            call.result()
        assert raised.value.code() == grpc.StatusCode.DATA_LOSS, "half of it is no policy"
        assert _offset(stub, sha256) == 0
        call = stub.PushPolicy.future(broken(), timeout=WAIT_S)
        with pytest.raises((grpc.FutureCancelledError, grpc.RpcError)):
            call.result()
        assert _offset(stub, sha256) in (0, 1000)
    assert client.push(policy_file(tmp_path, CONTENT), name="mine").sha256 == sha256
    assert stored_file(tmp_path, CONTENT).read_bytes() == CONTENT


class Trials:
    """Stands in for trials: each ends when it is told to, and the first policy is bad."""

    def __init__(self) -> None:
        self.begun, self.end = threading.Semaphore(0), threading.Semaphore(0)
        self.running = self.most_running = 0
        self.ended = 0

    def __call__(self, _options: object) -> None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.begun.release()
        assert self.end.acquire(timeout=WAIT_S)
        self.running -= 1
        self.ended += 1
        if self.ended == 1:
            raise PolicyError("The first one is bad.")


async def _parts(content: bytes) -> AsyncIterator[pb.PushPolicyRequest]:
    sha256 = hashlib.sha256(content).hexdigest()
    yield pb.PushPolicyRequest(sha256=sha256, name=content.decode(), chunk=content)


def test_a_client_that_goes_away_leaves_no_room_for_a_second_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of the first one is still there."""
    trials, store = Trials(), PolicyStore(tmp_path)
    monkeypatch.setattr(policy_servicer, "try_policy", trials)

    async def push_three() -> None:
        servicer: Any = PolicyServicer(mock.Mock(), store=store)
        aborts = mock.AsyncMock(side_effect=RuntimeError("refused"))
        context = mock.Mock(abort=aborts, peer=lambda: "unix:")
        first = asyncio.create_task(servicer.PushPolicy(_parts(b"first"), context))
        assert await asyncio.to_thread(trials.begun.acquire, timeout=WAIT_S)
        second = asyncio.create_task(servicer.PushPolicy(_parts(b"second"), context))
        third = asyncio.create_task(servicer.PushPolicy(_parts(b"third"), context))
        await asyncio.sleep(0.1)
        for gone in (first, second):
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
        with pytest.raises(RuntimeError, match="refused"):
            await servicer.PushPolicy(_parts(b"first"), context)
        assert "is being sent already" in aborts.call_args.args[1]
        aborts.reset_mock()
        await asyncio.sleep(0.1)
        trials.end.release()
        assert await asyncio.to_thread(trials.begun.acquire, timeout=WAIT_S)
        trials.end.release()
        await third

        assert not aborts.called, "a call that is over cannot be refused any more"

    asyncio.run(push_three())
    assert trials.most_running == 1
    assert [policy.name for policy in store.policies()] == ["third"]


def test_a_client_that_goes_away_is_not_refused_what_cannot_be_rolled_back(tmp_path: Path) -> None:
    """gRPC ends the process where a call is refused that is over."""

    async def roll_back() -> None:
        answered = asyncio.Event()

        async def ask(*_values: object, **_command: object) -> None:
            await answered.wait()  # and then the loop is being restarted

        link = mock.Mock(ask=ask, status=lambda: pb.StatusResponse(mode=pb.MODE_ACTIVE))
        servicer: Any = PolicyServicer(link, store=PolicyStore(tmp_path))
        aborts = mock.AsyncMock(side_effect=RuntimeError("refused"))
        context = mock.Mock(abort=aborts, peer=lambda: "unix:")
        gone = asyncio.create_task(servicer.RollBack(pb.RollBackRequest(), context))
        await asyncio.sleep(0.1)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        answered.set()
        await asyncio.sleep(0.1)
        assert not aborts.called
        with pytest.raises(RuntimeError, match="refused"):
            await servicer.RollBack(pb.RollBackRequest(), context)
        assert aborts.call_args.args[0] is grpc.StatusCode.UNAVAILABLE

    asyncio.run(roll_back())


def _offset(stub: pb_grpc.ActuatorServiceStub, sha256: str) -> int:
    answer = stub.PushOffset(pb.PushOffsetRequest(sha256=sha256), timeout=WAIT_S)
    return int(answer.received_bytes)


def test_what_cannot_be_a_policy_is_refused_and_counted(
    client: ActuatorClient, tmp_path: Path
) -> None:
    file = policy_file(tmp_path, CONTENT)
    with pytest.raises(RequestError, match="cannot be the name"):
        client.push(file, name="../passwd")
    with pytest.raises(PolicyError, match="cannot be read"):
        client.push(tmp_path / "missing.onnx", name="mine")
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    wrong = {
        "is no SHA-256 digest": pb.PushPolicyRequest(sha256="x", name="mine", chunk=b"1"),
        "The part begins at 7": pb.PushPolicyRequest(
            sha256=hashlib.sha256(b"2").hexdigest(), name="mine", offset=7, chunk=b"1"
        ),
        "bytes, more than": pb.PushPolicyRequest(
            sha256=sha256, name="mine", chunk=b"1" * ((1 << 20) + 1)
        ),
    }
    with grpc.insecure_channel(f"unix:{client.daemon}") as channel:
        stub = pb_grpc.ActuatorServiceStub(channel)  # type: ignore[no-untyped-call]
        for message, part in wrong.items():
            with pytest.raises(grpc.RpcError) as raised:
                stub.PushPolicy(iter([part]), timeout=WAIT_S)
            assert message in str(raised.value.details())
        with pytest.raises(grpc.RpcError) as raised:
            stub.PushPolicy(iter([]), timeout=WAIT_S)
        assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    refused = dict(client.status().refused)
    assert refused == {"INVALID_ARGUMENT": 4, "FAILED_PRECONDITION": 1}


@pytest.mark.slow
def test_the_service_refuses_by_itself_what_does_not_run_here(
    tmp_path: Path, start: Callable[..., Service]
) -> None:
    """Whoever sends it, and whatever it calls it: this client checks nothing."""
    good = write_policy(tmp_path / "good.onnx").read_bytes()
    other_input = write_policy(tmp_path / "i.onnx", inputs=BASIC.size - 1).read_bytes()
    other = metadata() | {"stallward.schema_hash": "0" * 16}
    refused = {
        "is not an ONNX model": b"root:x:0:0:root:/root:/bin/bash\n",
        "The policy november is empty": b"",
        "cut short or damaged": good[: len(good) // 2],
        "a ZIP archive": b"PK\x03\x04" + good,
        "was trained for another schema": write_policy(tmp_path / "o.onnx", other).read_bytes(),
        "not a stallward policy": write_policy(tmp_path / "n.onnx", {}).read_bytes(),
        "does not run": other_input,
        "at most 67108864 bytes": b"\x08\x08" * (MAX_POLICY_BYTES // 2 + 1),
    }
    service = start(policy_store=tmp_path / "store", tries=True)
    service.tick()
    with ActuatorClient(service.socket) as client:
        client.wait_ready(WAIT_S)
        pushed = client.push(good, name="november")
        for said, content in refused.items():
            with pytest.raises(RequestError, match=said):
                client.push(content, name="november")
            assert client.policies() == (pushed,)
        assert dict(client.status().refused) == {"INVALID_ARGUMENT": len(refused)}
    files = {path.name for path in (tmp_path / "store").rglob("*") if path.is_file()}
    assert files == {"policies.json", f"{pushed.sha256}.onnx"}


def test_a_policy_is_removed_by_name_or_digest_unless_it_runs(
    client: ActuatorClient, tmp_path: Path
) -> None:
    old, new = b"old", b"new"
    client.push(policy_file(tmp_path, old), name="november")
    newest = client.push(policy_file(tmp_path, new), name="november")
    activate(client, stored_file(tmp_path, old))
    assert [(one.loaded, one.active) for one in client.policies()] == [
        (True, True),
        (False, False),
    ]
    assert client.remove("november") == newest, "the newest of the name"
    assert not stored_file(tmp_path, new).exists()
    with pytest.raises(RequestError, match=r"november \(.*\) runs\. Turn it off first"):
        client.remove("november")
    with pytest.raises(PolicyError, match="There is no policy 'december'"):
        client.remove("december")
    client.set_mode(Mode.OFF)
    removed = client.remove(hashlib.sha256(old).hexdigest()[:12])
    assert removed.name == "november"
    assert client.policies() == ()


def test_the_list_marks_what_is_active_and_what_a_name_hides(
    client: ActuatorClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for content in (b"1", b"2"):
        client.push(policy_file(tmp_path, content), name="november")
    client.push(policy_file(tmp_path, b"3"), name="december")
    activate(client, stored_file(tmp_path, b"3"))
    socket = ["--socket", f"{client.daemon}"]
    assert main(["ctl", "policies", *socket]) == 0
    rows = [line.split(None, 5)[5:] for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == [["older of the name november"], [], ["active"]]
    assert main(["ctl", "remove", "november", *socket]) == 0
    assert capsys.readouterr().out.startswith("removed november (sha256 ")


def test_rolling_back_activates_what_decided_before(
    client: ActuatorClient, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match="nothing to roll back"):
        client.roll_back()
    first = activate(client, policy_file(tmp_path, b"first", "first.onnx"))
    second = client.push(policy_file(tmp_path, b"second", "second.onnx"), name="second")
    activate(client, stored_file(tmp_path, b"second"))
    assert client.status().policy is not None
    back = client.roll_back()
    assert back is not None
    assert back.sha256 == first != second.sha256
    assert client.status().mode is Mode.ACTIVE
    assert client.roll_back() is None, "before that no policy decided"
    assert client.status().mode is Mode.OFF


def test_a_controller_that_was_named_is_gone_back_to(
    client: ActuatorClient, tmp_path: Path
) -> None:
    loaded = client.load("controller:partition:turn_s=20")
    assert loaded.path == "controller:partition:turn_s=20"
    client.set_mode(Mode.ACTIVE)
    activate(client, policy_file(tmp_path, b"policy"))
    back = client.roll_back()
    assert back is not None
    assert back == loaded
    assert client.status().mode is Mode.ACTIVE


def test_a_policy_that_decided_from_the_start_is_gone_back_to(
    tmp_path: Path, start: Callable[..., Service]
) -> None:
    service = start(policy_store=tmp_path / "store")
    first, content = policy_file(tmp_path, b"first", "first.onnx"), b"first"
    loop = Loop(service)
    loop.status.mode = pb.MODE_ACTIVE
    sha256 = hashlib.sha256(content).hexdigest()
    loop.status.policy.CopyFrom(pb.PolicyStatus(name="first", path=str(first), sha256=sha256))
    loop.send_status()
    with ActuatorClient(service.socket) as client:
        deadline_s = time.monotonic() + WAIT_S
        while client.wait_ready(WAIT_S).mode is not Mode.ACTIVE:
            assert time.monotonic() < deadline_s
        activate(client, policy_file(tmp_path, b"second", "second.onnx"))
        back = client.roll_back()
    assert back is not None
    assert back.sha256 == sha256
    loop.end()


def test_an_earlier_policy_that_was_changed_is_not_activated(
    client: ActuatorClient, tmp_path: Path
) -> None:
    first = policy_file(tmp_path, b"first", "first.onnx")
    activate(client, first)
    second = activate(client, policy_file(tmp_path, b"second", "second.onnx"))
    first.write_bytes(b"another")
    with pytest.raises(RequestError, match=r"first\.onnx was changed"):
        client.roll_back()
    first.unlink()
    with pytest.raises(RequestError, match="is not there any more"):
        client.roll_back()
    status = client.status()
    assert status.policy is not None
    assert (status.policy.sha256, status.mode) == (second, Mode.ACTIVE)


def test_an_activation_that_cannot_be_noted_is_said_and_stands(
    client: ActuatorClient, tmp_path: Path
) -> None:
    (tmp_path / "store").write_text("in the way")
    activate(client, policy_file(tmp_path, b"first", "first.onnx"))
    status = client.status()
    assert status.mode is Mode.ACTIVE
    assert any(text.startswith("roll back: ") for text in status.missing)
    with pytest.raises(DaemonError, match="RESOURCE_EXHAUSTED"):
        client.push(tmp_path / "first.onnx", name="mine")


def test_without_a_folder_no_policies_are_taken(
    tmp_path: Path, start: Callable[..., Service]
) -> None:
    service = start()
    service.tick()
    with ActuatorClient(service.socket) as client:
        client.wait_ready(WAIT_S)
        for call in (
            client.policies,
            client.roll_back,
            lambda: client.push(policy_file(tmp_path, b"1"), name="mine"),
        ):
            with pytest.raises(RequestError, match="Set store under"):
                call()


def test_a_policy_that_misses_the_target_is_turned_off(
    tmp_path: Path, start: Callable[..., Service]
) -> None:
    service = start(canary_s=1800.0, canary_margin=0.02)  # the target is 60 ms
    loop = Loop(service)
    with ActuatorClient(service.socket) as client:
        client.wait_ready(WAIT_S)
        for second in range(100):
            loop.send_second(second, p95_ms=20.0)
        activate(client, policy_file(tmp_path, b"bad", "bad.onnx"))
        loop.send_second(100, p95_ms=90.0)
        deadline_s, second = time.monotonic() + WAIT_S, 100
        watched = client.status().canary
        while watched is None or not watched.watching:
            assert time.monotonic() < deadline_s
            watched = client.status().canary
        assert (watched.attainment, watched.attainment_before) == (None, 1.0)
        while client.status().mode is Mode.ACTIVE:
            assert time.monotonic() < deadline_s
            second += 1
            loop.send_second(second, p95_ms=90.0)
        assert second < 300
        status = client.status()
        while not (status.canary and status.canary.returned):
            assert time.monotonic() < deadline_s
            status = client.status()
        assert "The policy bad was turned off: it kept the target in 0 %" in status.canary.returned
    loop.end()


def test_seconds_of_a_lease_or_a_fallback_are_not_the_policys(
    tmp_path: Path, start: Callable[..., Service]
) -> None:
    service = start(canary_s=1800.0, canary_margin=0.02)
    loop = Loop(service)
    with ActuatorClient(service.socket) as client:
        client.wait_ready(WAIT_S)
        for second in range(100):
            loop.send_second(second, p95_ms=20.0)
        activate(client, policy_file(tmp_path, b"good", "good.onnx"))
        for second in range(100, 400):
            odd = second % 10 != 0
            loop.send_second(
                second,
                p95_ms=90.0 if odd else 20.0,
                leased=odd and second < 250,
                fallback=odd and second >= 250,
            )
        loop.send_second(400, p95_ms=20.0)
        deadline_s = time.monotonic() + WAIT_S
        status = client.status()
        while status.last_tick is None or status.last_tick.sequence < 400:
            assert time.monotonic() < deadline_s
            status = client.status()
        assert status.mode is Mode.ACTIVE
        assert status.canary is not None
        assert status.canary.watching
        assert status.canary.attainment == 1.0
    loop.end()


@pytest.mark.slow
def test_a_shadow_run_is_watched_and_summarised(
    tmp_path: Path, start: Callable[..., Service], capsys: pytest.CaptureFixture[str]
) -> None:
    service = start()
    loop, over = Loop(service), threading.Event()
    record = pb.TickRecord(mode=pb.MODE_SHADOW)
    record.sample.slots.add(name="hog")
    record.shadow.controller = "onnx"

    def tick() -> None:
        while not over.wait(0.02):
            record.sequence += 1
            record.time_s += 0.1
            del record.shadow.desired.slots[:]
            record.shadow.desired.slots.add(paused=record.sequence % 2 == 0)
            loop.connection.send(frame_tick(record.SerializeToString()))

    where = ("--socket", str(service.socket), "--seconds", "1")
    ticking = threading.Thread(target=tick)
    with ActuatorClient(service.socket) as client:
        client.wait_ready(WAIT_S)
    ticking.start()
    try:
        assert main(["ctl", "shadow", *where]) == 0
        said = capsys.readouterr().out
    finally:
        over.set()
        ticking.join(WAIT_S)
        loop.end()
    assert "hog: paused" in said
    assert "in shadow mode the policy wanted something else in" in said
    assert main(["ctl", "shadow", "--recording", str(tmp_path)]) == 2
    assert "There is no" in capsys.readouterr().err
