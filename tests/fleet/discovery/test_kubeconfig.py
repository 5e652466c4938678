"""A cluster is reached by an operator's kubeconfig, its contexts and its plug-ins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from cluster_api import TOKEN, ClusterApi, endpoint, endpoint_slice

from stallward.agent.errors import StallwardError, UnbelievedFileError
from stallward.fleet import load_fleet
from stallward.fleet.discovery.config import ServiceConfig
from stallward.fleet.discovery.endpoints import find_endpoints
from stallward.fleet.errors import DiscoveryError

PLUGIN = """#!/bin/sh
[ "$1" = token ] && [ "$FOR" = nodes ] || { echo "who are you?" >&2; exit 3; }
printf '%s\\n' "$KUBERNETES_EXEC_INFO" >> "$0.asked"
printf '{"kind": "ExecCredential", "status": {"token": "%s"}}' "$(cat "$(dirname "$0")/token")"
"""


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let this be no pod, and nobody who has a kubeconfig."""
    for name in ("KUBERNETES_SERVICE_HOST", "KUBECONFIG", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ClusterApi]:
    made = ClusterApi(tmp_path)
    made.slices = [endpoint_slice(endpoint("10.0.0.1", "w"))]
    yield made
    made.close()


class Cluster:
    """A kubeconfig beside a file of nodes.

    Args:
        api: The cluster.
    """

    def __init__(self, api: ClusterApi) -> None:
        self.folder = api.folder
        self.content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "other",
            "clusters": [
                # The authority is found beside the file.
                {
                    "name": "c",
                    "cluster": {"server": api.address, "certificate-authority": "ca.crt"},
                }
            ],
            "contexts": [
                {"name": "edge", "context": {"cluster": "c", "user": "u", "namespace": "edge"}},
                {"name": "other", "context": {"cluster": "c", "user": "nobody"}},
            ],
            "users": [{"name": "u", "user": {"token": TOKEN}}, {"name": "nobody", "user": {}}],
        }

    def user(self, **settings: Any) -> None:
        """Let the user of the context have other settings."""
        self.content["users"][0]["user"] = settings

    def plugin(self, text: str, version: str = "v1beta1") -> Path:
        """Let the token be that of a program, which lies beside the file."""
        plugin = self.folder / "plugin"
        plugin.write_text(text)
        plugin.chmod(0o700)
        environment = [{"name": "FOR", "value": "nodes"}]
        version = f"client.authentication.k8s.io/{version}"
        self.user(
            exec={
                "apiVersion": version,
                "command": "./plugin",
                "args": ["token"],
                "env": environment,
            }
        )
        return plugin

    def write(self) -> Path:
        """Write the kubeconfig."""
        path = self.folder / "kubeconfig"
        path.write_text(yaml.safe_dump(self.content))
        return path

    def found(self, *, context: str = "edge", named: bool = True, **keys: str) -> dict[str, str]:
        """The nodes, by a file that names the kubeconfig and its context."""
        self.write()
        table = {"service": "stallward", **keys}
        table |= {"kubeconfig": "kubeconfig"} if named else {}
        table |= {"context": context} if context else {}
        lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        file = self.folder / "nodes.toml"
        file.write_text("\n".join(['tls = "tls"', "[kubernetes]", *lines]))
        return {name: str(one) for name, one in load_fleet(file).items()}


@pytest.fixture
def cluster(api: ClusterApi) -> Cluster:
    return Cluster(api)


NODES = {"w": "10.0.0.1:7443"}


def test_the_context_says_the_cluster_the_user_and_the_namespace(cluster: Cluster) -> None:
    assert cluster.found() == NODES
    with pytest.raises(DiscoveryError, match=r"answers 401 .* has not run out"):
        cluster.found(context="", namespace="edge")  # the current one, whose user has no token


def test_by_default_it_is_the_file_of_the_environment_or_of_the_home(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DiscoveryError, match=r"\.kube/config cannot be read .* not run in a Kub"):
        cluster.found(named=False)
    monkeypatch.setenv("KUBECONFIG", str(cluster.folder / "kubeconfig"))
    assert cluster.found(named=False) == NODES
    cluster.content["current-context"] = "edge"
    assert cluster.found(named=False, context="") == NODES
    monkeypatch.delenv("KUBECONFIG")
    (cluster.folder / "home/.kube").mkdir(parents=True)
    cluster.write().rename(cluster.folder / "home/.kube/config")
    for name in ("ca.crt", "token"):
        (cluster.folder / name).rename(cluster.folder / "home/.kube" / name)
    assert cluster.found(named=False, context="") == NODES


def test_a_kubeconfig_that_is_named_goes_before_the_cluster_in_which_this_runs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    assert cluster.found() == NODES


def test_the_token_may_be_in_a_file_beside_it(cluster: Cluster) -> None:
    cluster.user(tokenFile="token")
    assert cluster.found() == NODES


@pytest.mark.parametrize("version", ["v1beta1", "v1"])
def test_a_plug_in_gives_the_token_at_each_lookup(cluster: Cluster, version: str) -> None:
    plugin = cluster.plugin(PLUGIN, version)
    assert cluster.found() == NODES
    assert cluster.found() == NODES
    asked = [json.loads(line) for line in Path(f"{plugin}.asked").read_text().splitlines()]
    assert [one["apiVersion"] for one in asked] == [f"client.authentication.k8s.io/{version}"] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/bin/sh\necho who are you >&2; exit 3\n", "returned 3: who are you"),
        ("#!/bin/sh\necho no JSON\n", "there is no token .* prints an ExecCredential"),
        ("#!/bin/sh\necho '{}'\n", "there is no token .* prints an ExecCredential"),
        ("#!/no/such/shell\n", "cannot be asked: .*No such file"),
    ],
)
def test_a_plug_in_that_fails_is_said(cluster: Cluster, text: str, message: str) -> None:
    cluster.plugin(text)
    with pytest.raises(DiscoveryError, match=message):
        cluster.found()


def test_a_token_that_has_run_out_is_asked_for_once_more_and_then_refused(
    cluster: Cluster,
) -> None:
    cluster.plugin(PLUGIN)
    (cluster.folder / "token").write_text("another")
    with pytest.raises(DiscoveryError, match="answers 401"):
        cluster.found()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "cannot be used as a kubeconfig: .* kubectl can use it"),
        ("", "cannot be used as a kubeconfig"),
        ("clusters: []\ncontexts: []\n", "Context 'edge' not found"),
        (
            "clusters: [{name: c, cluster: {server: 'https://x', certificate-authority: none}}]\n"
            "contexts: [{name: edge, context: {cluster: c}}]\n",
            "No such file",
        ),
        (
            "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
            "contexts: [{name: edge, context: {cluster: c}}]\n",
            "for everybody to read",
        ),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    with pytest.raises(DiscoveryError, match=message):
        find_endpoints(ServiceConfig(service="s", kubeconfig=path, context="edge"))


def test_root_runs_no_plug_in_that_others_can_have_named(cluster: Cluster) -> None:
    path = cluster.write()
    path.chmod(0o666)
    with pytest.raises(UnbelievedFileError, match="others may have written it"):
        find_endpoints(ServiceConfig(service="stallward", kubeconfig=path, context="edge"))


def test_a_cluster_is_named_in_one_way(cluster: Cluster) -> None:
    with pytest.raises(StallwardError, match="Write either kubeconfig and context, or server"):
        cluster.found(server="https://127.0.0.1:1")


def test_an_authority_that_signed_nothing_here_is_refused(cluster: Cluster) -> None:
    trustme.CA().cert_pem.write_to_path(cluster.folder / "ca.crt")
    with pytest.raises(DiscoveryError, match="certificate verify failed"):
        cluster.found()
