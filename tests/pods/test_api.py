"""Pods are followed by the API, over real HTTP, through everything that can go wrong."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from fake_api import FakeApi
from free_port import free_port
from pods import mirror_of, uid_of, written

from stallward.actuator.targets.config import KubernetesConfig, check_server
from stallward.agent.errors import SchemaError
from stallward.kubernetes.api import ApiPods
from stallward.kubernetes.errors import ApiError
from stallward.kubernetes.pod import OddPod, Pod
from stallward.kubernetes.server import FIRST_RETRY_S, Retries, server_of
from stallward.kubernetes.store import PodStore

PATIENCE_S = 20.0


class Waits(threading.Event):
    """Waits for nothing, and notes how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.noted_s: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.noted_s.append(timeout or 0.0)
        return self.is_set()


class Follower:
    """Follows a server in a thread, as the process does."""

    def __init__(self, api: FakeApi, **options: object) -> None:
        self.store = PodStore()
        self._ended: threading.Event = options.pop("ended", None) or threading.Event()  # type: ignore[assignment]
        config = KubernetesConfig(
            token=options.pop("token", Path("/none")),  # type: ignore[arg-type]
            ca=options.pop("ca", Path("/none")),  # type: ignore[arg-type]
            resync_s=options.pop("resync_s", 300.0),  # type: ignore[arg-type]
        )
        source = ApiPods(config, api.url, "node-7", retry_s=0.02, **options)  # type: ignore[arg-type]
        self._thread = threading.Thread(target=source.run, args=(self.store, self._ended))
        self._thread.start()

    @property
    def names(self) -> list[str]:
        return sorted(pod.name for pod in self.store.read().pods if isinstance(pod, Pod))

    @property
    def fault(self) -> str:
        return self.store.read().fault

    def end(self, api: FakeApi) -> None:
        self._ended.set()
        api.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def wait_for(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi().start()


@pytest.fixture
def follower(api: FakeApi) -> Iterator[Follower]:
    api.put(written("first", number=1))
    following = Follower(api)
    try:
        yield following
    finally:
        following.end(api)


def test_what_is_there_and_what_changes_is_known(api: FakeApi, follower: Follower) -> None:
    wait_for(lambda: follower.names == ["first"])
    assert follower.fault == ""
    wait_for(lambda: api.watches)
    api.put(written("second", number=2))
    wait_for(lambda: follower.names == ["first", "second"])
    api.put(written("second", number=2, deletionTimestamp="2026-01-01T00:00:00Z"))
    wait_for(lambda: any(isinstance(p, Pod) and p.leaving for p in follower.store.read().pods))
    api.remove(uid_of(2))
    wait_for(lambda: follower.names == ["first"])
    running = "spec.nodeName=node-7,status.phase!=Succeeded,status.phase!=Failed"
    assert {request["fieldSelector"] for request in api.requests} == {running}
    assert {request["path"] for request in api.requests} == {"/api/v1/pods"}


def test_a_forgotten_version_makes_it_list_anew(api: FakeApi, follower: Follower) -> None:
    wait_for(lambda: api.watches)
    api.forget()
    api.put(written("second", number=2))
    wait_for(lambda: follower.names == ["first", "second"])
    assert follower.fault == ""


def test_a_version_that_is_refused_at_once_makes_it_list_anew(
    api: FakeApi, follower: Follower
) -> None:
    wait_for(lambda: api.watches)
    api.forget(silently=True)
    api.drop()
    wait_for(lambda: not api.watches)
    api.remove(uid_of(1))
    api.put(written("third", number=3))
    wait_for(lambda: follower.names == ["third"])


def test_a_dropped_connection_loses_nothing(api: FakeApi, follower: Follower) -> None:
    for number in range(2, 6):
        wait_for(lambda: api.watches)
        api.drop()
        api.put(written(f"pod{number}", number=number))
        wait_for(lambda number=number: f"pod{number}" in follower.names)  # type: ignore[misc]
    assert len(follower.names) == 5


def test_a_server_that_is_down_leaves_what_was_known(api: FakeApi, follower: Follower) -> None:
    wait_for(lambda: follower.names == ["first"])
    wait_for(lambda: api.watches)  # a connection that is just being made would wait for its limit
    api.stop()
    wait_for(lambda: "cannot be used" in follower.fault)
    assert "What is known stays in force" in follower.fault
    assert follower.names == ["first"]
    api.put(written("second", number=2))
    api.start()
    wait_for(lambda: follower.names == ["first", "second"])
    assert follower.fault == ""


def test_a_server_that_is_down_for_hours_is_asked_again_and_again() -> None:
    retries, store, waits = Retries(FIRST_RETRY_S), PodStore(), Waits()
    for _ in range(2000):  # more than there are powers of two
        retries.fail(ApiError("It does not answer."), store, waits)
    assert FIRST_RETRY_S / 2.0 <= waits.noted_s[0] <= FIRST_RETRY_S
    assert all(7.5 <= wait_s <= 15.0 for wait_s in waits.noted_s[10:])
    retries.succeed()
    retries.fail(ApiError("It does not answer."), store, waits)
    assert waits.noted_s[-1] <= FIRST_RETRY_S


def test_a_server_that_is_down_at_the_start_is_waited_for() -> None:
    api = FakeApi(port=free_port())
    follower = Follower(api)
    try:
        wait_for(lambda: "cannot be used (Connection refused)" in follower.fault)
        assert follower.names == []
        api.put(written("first"))
        api.start()
        wait_for(lambda: follower.names == ["first"])
    finally:
        follower.end(api)


@pytest.mark.parametrize(
    ("status", "said"), [(401, "token"), (403, "list and watch pods"), (500, "500")]
)
def test_a_refusal_says_what_to_do_and_is_tried_again(
    api: FakeApi, follower: Follower, status: int, said: str
) -> None:
    wait_for(lambda: api.watches)
    api.status = status
    api.drop()
    wait_for(lambda: f"answers {status}: no, not you" in follower.fault)
    assert said in follower.fault
    assert follower.names == ["first"]
    api.status = 200
    wait_for(lambda: follower.fault == "")


@pytest.mark.parametrize("works", ["an event", "an end"])
def test_a_watch_that_is_refused_is_tried_less_often_until_one_works(works: str) -> None:
    api, waits = FakeApi(), Waits()
    api.watch_status = 403
    follower = Follower(api.start(), ended=waits)
    try:
        wait_for(lambda: len(waits.noted_s) > 8)
        assert waits.noted_s[8] >= 0.02 * 2**8 / 2.0
        api.watch_status = 200
        wait_for(lambda: api.watches)
        noted = len(waits.noted_s)
        api.watch_status = 403
        if works == "an event":
            api.put(written("first"))
            api.say("ERROR", {"code": 500})
        else:
            api.drop()
        wait_for(lambda: len(waits.noted_s) > noted + 1)
        assert max(waits.noted_s[noted : noted + 2]) <= 2.0 * 0.02
    finally:
        follower.end(api)


def test_an_odd_pod_costs_itself_alone_in_a_list_and_in_a_watch(
    api: FakeApi, follower: Follower
) -> None:
    def left_out() -> list[str]:
        return [str(one) for one in follower.store.read().pods if isinstance(one, OddPod)]

    wait_for(lambda: api.watches)
    listed = len(api.requests)
    odd = {**written("odd", number=2), "status": {"qosClass": "Elastic"}}
    api.put(odd)
    api.put(written("third", number=3))
    wait_for(lambda: "work/third" in map(str, follower.store.read().pods))
    (why,) = left_out()
    assert "work/odd: What should be a pod is not one" in why
    assert (len(api.requests), follower.fault) == (listed, ""), "nothing was listed anew for it"
    api.forget()
    wait_for(lambda: len(api.requests) > listed)
    wait_for(lambda: api.watches)
    assert left_out() == [why]
    assert {"work/first", "work/third"} <= set(map(str, follower.store.read().pods))
    api.put(written("odd", number=2))
    wait_for(lambda: left_out() == [])
    api.put(odd)
    wait_for(left_out)
    api.remove(uid_of(2))
    wait_for(lambda: left_out() == [])


def test_an_attackers_pod_comes_and_goes_and_nobody_is_forgotten(
    api: FakeApi, follower: Follower
) -> None:
    wait_for(lambda: api.watches)
    hashed = {"kubernetes.io/config.hash": uid_of(1)}
    for thief in (
        written("thief", number=2, annotations=hashed),
        written("thief", number=2, **mirror_of(uid_of(1))),
    ):
        api.put(thief)
        wait_for(lambda: len(follower.store.read().pods) == 2)
        api.remove(uid_of(2))
        wait_for(lambda: len(follower.store.read().pods) == 1)
        assert follower.names == ["first"]


def test_an_event_that_makes_no_sense_makes_it_list_anew(api: FakeApi, follower: Follower) -> None:
    for kind, value in (("ADDED", {"kind": "Pod"}), ("STRANGE", {}), ("ERROR", {"code": 500})):
        wait_for(lambda: api.watches)
        listed = len(api.requests)
        api.say(kind, value)
        wait_for(lambda listed=listed: len(api.requests) > listed + 1)  # type: ignore[misc]
        wait_for(lambda: follower.fault == "" and follower.names == ["first"])


@pytest.mark.slow
def test_a_silent_watch_is_given_up_and_everything_listed_after_a_while() -> None:
    api = FakeApi().start()
    api.put(written("first"))
    silent = Follower(api, silent_s=0.1)
    try:
        wait_for(lambda: sum("watch" not in request for request in api.requests) > 2)
        assert silent.names == ["first"]
    finally:
        silent.end(api)
    api = FakeApi().start()
    often = Follower(api, resync_s=1.0)
    try:
        wait_for(lambda: sum("watch" not in request for request in api.requests) > 1)
        assert often.fault == ""
    finally:
        often.end(api)


def test_a_bookmark_moves_the_version_and_nothing_else(api: FakeApi, follower: Follower) -> None:
    wait_for(lambda: api.watches)
    api.say("BOOKMARK", {"kind": "Pod", "metadata": {}})
    api.put(written("second", number=2))
    wait_for(lambda: follower.names == ["first", "second"])
    api.drop()
    versions: list[int] = []

    def goes_on() -> bool:
        versions[:] = [int(r["resourceVersion"]) for r in api.requests if "watch" in r]
        return len(versions) > 1

    wait_for(goes_on)
    assert versions == [11, 13]


def test_the_token_goes_to_the_server_of_the_authority_and_is_read_each_time(
    tmp_path: Path,
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.crt")
    token = tmp_path / "token"
    token.write_text("one\n")
    api = FakeApi(tls=context).start()
    api.put(written("first"))
    follower = Follower(api, token=token, ca=tmp_path / "ca.crt")
    try:
        wait_for(lambda: follower.names == ["first"] and api.watches)
        assert {request["Authorization"] for request in api.requests} == {"Bearer one"}
        token.write_text("two\n")
        api.drop()
        wait_for(lambda: api.requests[-1]["Authorization"] == "Bearer two")
        stranger = Follower(api, token=token, ca=tmp_path / "other.crt")
        wait_for(lambda: "CERTIFICATE_VERIFY_FAILED" in stranger.fault)
        assert stranger.names == []
    finally:
        follower.end(api)
        stranger.end(api)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file"), (b"secret\nsecret", "holds no token"), (b"\xff", "holds no token")],
)
def test_a_token_that_cannot_be_used_is_a_fault_with_its_path_alone(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    api, token = FakeApi(tls=context, port=free_port()), tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    follower = Follower(api, token=token, ca=tmp_path / "ca.crt")
    try:
        wait_for(lambda: said in follower.fault)
        assert str(token) in follower.fault
        assert "secret" not in follower.fault
    finally:
        follower.end(api)


def test_a_name_that_no_server_can_have_is_a_fault(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("secret")
    config = KubernetesConfig(token=tmp_path / "token", ca=tmp_path / "ca.crt")
    with pytest.raises(ApiError, match=r"https://api\.\.example cannot be used"):
        ApiPods(config, "https://api..example", "node-7").look(PodStore())


@pytest.mark.parametrize(
    "server",
    ["", "host", "ftp://host", "https://", "http://10.0.0.1:80", "https://h/x", "https://h:x"],
)
def test_an_address_that_is_none_or_not_encrypted_is_refused(server: str) -> None:
    with pytest.raises(SchemaError, match="server is "):
        check_server(server)


def test_the_cluster_says_where_its_server_is() -> None:
    here = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT_HTTPS": "6443"}
    assert server_of(KubernetesConfig(), here) == "https://[fd00::1]:6443"
    assert server_of(KubernetesConfig(), {}) is None
    given = KubernetesConfig(server="http://127.0.0.1:8001")
    assert server_of(given, here) == "http://127.0.0.1:8001"
