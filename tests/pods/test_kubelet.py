"""Pods are followed by asking the node's own kubelet, over real HTTP and TLS."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from fake_api import FakeApi
from pods import uid_of, written

from stallward.actuator.errors import NodeError
from stallward.actuator.targets.config import KubernetesConfig
from stallward.kubernetes.errors import ApiError
from stallward.kubernetes.identity import believed
from stallward.kubernetes.kubelet import KubeletPods
from stallward.kubernetes.server import server_of
from stallward.kubernetes.store import PodStore
from stallward.kubernetes.watcher import make_source

PATIENCE_S = 20.0
STATIC = "0123456789abcdef0123456789abcdef"


def wait_for(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


class Follower:
    """Follows a kubelet in a thread, as the process does."""

    def __init__(self, kubelet: FakeApi) -> None:
        self.store = PodStore()
        self._ended = threading.Event()
        config = KubernetesConfig(source="kubelet", server=kubelet.url)
        source = KubeletPods(config, kubelet.url, period_s=0.02, retry_s=0.02)
        self._thread = threading.Thread(target=source.run, args=(self.store, self._ended))
        self._thread.start()

    @property
    def names(self) -> list[str]:
        return sorted(map(str, self.store.read().pods))

    @property
    def fault(self) -> str:
        return self.store.read().fault

    def end(self) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def kubelet() -> Iterator[FakeApi]:
    server = FakeApi().start()
    yield server
    server.stop()


@pytest.fixture
def follower(kubelet: FakeApi) -> Iterator[Follower]:
    kubelet.put(written("first", number=1))
    following = Follower(kubelet)
    yield following
    following.end()


def test_what_comes_and_goes_is_known_at_the_next_look(
    kubelet: FakeApi, follower: Follower
) -> None:
    wait_for(lambda: follower.names == ["work/first"])
    kubelet.put(written("second", number=2))
    wait_for(lambda: follower.names == ["work/first", "work/second"])
    kubelet.remove(uid_of(1))
    wait_for(lambda: follower.names == ["work/second"])
    kubelet.remove(uid_of(2))
    wait_for(lambda: follower.names == [])
    assert follower.fault == ""
    assert {request["path"] for request in kubelet.requests} == {"/pods"}


def test_the_same_pods_again_wake_nobody(kubelet: FakeApi, follower: Follower) -> None:
    wait_for(lambda: follower.names == ["work/first"])
    version, asked = follower.store.read().version, len(kubelet.requests)
    wait_for(lambda: len(kubelet.requests) > asked + 3)
    assert follower.store.read().version == version


def test_a_kubelet_that_is_down_leaves_what_was_known(
    kubelet: FakeApi, follower: Follower
) -> None:
    wait_for(lambda: follower.names == ["work/first"])
    kubelet.stop()
    wait_for(lambda: "The kubelet http://127.0.0.1:" in follower.fault)
    assert "What is known stays in force" in follower.fault
    assert follower.names == ["work/first"]
    kubelet.put(written("second", number=2))
    kubelet.start()
    wait_for(lambda: follower.names == ["work/first", "work/second"])
    assert follower.fault == ""


@pytest.mark.parametrize(
    ("status", "said"),
    [(401, "authentication.webhook.enabled"), (403, "get nodes/pods"), (500, "")],
)
def test_a_refusal_says_what_to_do_and_is_tried_again(
    kubelet: FakeApi, follower: Follower, status: int, said: str
) -> None:
    wait_for(lambda: follower.names)
    kubelet.status = status
    wait_for(lambda: f"The kubelet answers {status}: no, not you" in follower.fault)
    assert said in follower.fault
    kubelet.status = 200
    wait_for(lambda: follower.fault == "")


def test_a_static_pod_is_listed_by_the_uid_of_its_group(kubelet: FakeApi) -> None:
    # The kubelet lists its static pods themselves, and no mirror pods.
    static = written("etcd", annotations={"kubernetes.io/config.hash": STATIC}, uid=STATIC)
    kubelet.put(static)
    kubelet.put({"metadata": {"uid": "odd"}})
    store = PodStore()
    KubeletPods(KubernetesConfig(), kubelet.url).look(store)
    (good,), left_out = believed(store.read().pods)
    assert (good.key, good.uid) == (STATIC, STATIC)
    assert len(left_out) == 1


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def kubelet_with(authority: trustme.CA, folder: Path, *names: str) -> FakeApi:
    """A kubelet with a certificate for these names, and the files that go with it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    authority.cert_pem.write_to_path(folder / "ca.crt")
    (folder / "token").write_text("one\n")
    kubelet = FakeApi(tls=context).start()
    kubelet.put(written("first"))
    return kubelet


def look(kubelet: FakeApi, folder: Path, **config: Any) -> tuple[str, ...]:
    store = PodStore()
    files = {"token": folder / "token", "ca": folder / "ca.crt", **config}
    KubeletPods(KubernetesConfig(source="kubelet", **files), kubelet.url).look(store)
    return tuple(map(str, store.read().pods))


def test_the_token_goes_to_a_kubelet_with_a_certificate_of_the_authority_alone(
    authority: trustme.CA, tmp_path: Path
) -> None:
    kubelet = kubelet_with(authority, tmp_path, "127.0.0.1")
    try:
        assert look(kubelet, tmp_path) == ("work/first",)
        assert kubelet.requests[-1]["Authorization"] == "Bearer one"
        asked = len(kubelet.requests)
        trustme.CA().cert_pem.write_to_path(tmp_path / "other.crt")
        with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED") as refused:
            look(kubelet, tmp_path, ca=tmp_path / "other.crt")
        assert "serverTLSBootstrap" in refused.value.next_step
        assert len(kubelet.requests) == asked, "it never saw the token"
    finally:
        kubelet.stop()


def test_a_certificate_for_the_nodes_name_takes_that_name(
    authority: trustme.CA, tmp_path: Path
) -> None:
    kubelet = kubelet_with(authority, tmp_path, "node-7")
    try:
        with pytest.raises(ApiError, match="IP address mismatch"):
            look(kubelet, tmp_path)
        with pytest.raises(ApiError, match="Hostname mismatch"):
            look(kubelet, tmp_path, server_name="node-8")
        assert look(kubelet, tmp_path, server_name="node-7") == ("work/first",)
    finally:
        kubelet.stop()


def test_the_pod_says_where_its_nodes_kubelet_is() -> None:
    config = KubernetesConfig(source="kubelet")
    assert server_of(config, {"NODE_IP": "10.0.0.7"}) == "https://10.0.0.7:10250"
    assert server_of(config, {"NODE_IP": "fd00::7"}) == "https://[fd00::7]:10250"
    assert server_of(config, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) is None
    source = make_source(config, {"NODE_IP": "10.0.0.7"})
    assert source.name == "The kubelet https://10.0.0.7:10250"
    with pytest.raises(NodeError, match="address of the kubelet is not known"):
        make_source(config, {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NODE_NAME": "node-7"})
