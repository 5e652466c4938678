"""The client of a fleet reaches the nodes of the chart, where the values ask for it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_api import ClusterApi, endpoint, endpoint_slice
from helm_chart import ROOT, TLS, configuration, needs_helm, pod_of, render

from stallward.actuator.client.remote_daemon import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE
from stallward.actuator.config.tables import RemoteConfig
from stallward.fleet.discovery.endpoints import find_endpoints
from stallward.fleet.discovery.fleet_source import FleetFile, read_fleet_file

pytestmark = [
    needs_helm,
    pytest.mark.reaches("deploy/", "docs/reference/fleet.md", "docs/how-to/roll-out-a-policy.md"),
]

CLIENT = ROOT / "deploy/fleet-client.yaml"
PAGES = ("docs/reference/fleet.md", "docs/how-to/roll-out-a-policy.md")
KUBERNETES = ("1.29", "1.33", "1.36")


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return render(tmp_path_factory.mktemp("chart"), {"remote": TLS})


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ClusterApi]:
    made = ClusterApi(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def client() -> dict[str, dict[str, Any]]:
    """The objects of the manifest of the client, by their kind."""
    return {one["kind"]: one for one in yaml.safe_load_all(CLIENT.read_text())}


def test_the_daemon_shows_the_certificate_of_the_secret_and_nobody_else_has_it(
    chart: dict[str, dict[str, Any]],
) -> None:
    tls = Path("/etc/stallward-tls")
    assert configuration(chart).remote == RemoteConfig(
        address="0.0.0.0:7443",
        certificate=tls / "tls.crt",
        key=tls / "tls.key",
        client_ca=tls / "ca.crt",
        operators=("ops.example.org",),
    )
    pod = pod_of(chart)
    (secret,) = [one for one in pod["volumes"] if "secret" in one]
    assert secret["secret"]["secretName"] == "node-tls"
    assert secret["secret"]["defaultMode"] == 0o400
    files = {item["key"]: item["path"] for item in secret["secret"]["items"]}
    assert files == {name: name for name in ("tls.crt", "tls.key", "ca.crt")}
    for container in (*pod["initContainers"], *pod["containers"]):
        mounts = {m["mountPath"] for m in container["volumeMounts"] if m["name"] == "tls"}
        assert mounts == ({str(tls)} if container["name"] == "stallward" else set())
        # A single file would not be renewed.
        assert not any("subPath" in mount for mount in container["volumeMounts"])


def test_by_default_no_other_machine_comes_in(tmp_path: Path) -> None:
    plain = render(tmp_path, {})
    assert configuration(plain).remote is None
    assert not re.search(r"7443|\btls\b|remote", json.dumps(plain))


def test_who_reaches_the_port_can_be_said(
    chart: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    metrics, remote = chart["NetworkPolicy"]["spec"]["ingress"]
    assert "from" not in metrics
    assert "from" not in remote
    clients = [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "stallward-client"}}}]
    values = {"remote": {**TLS, "port": 8443}, "networkPolicy": {"remoteFrom": clients}}
    metrics, remote = render(tmp_path, values)["NetworkPolicy"]["spec"]["ingress"]
    assert "from" not in metrics
    assert remote == {"from": clients, "ports": [{"port": 8443, "protocol": "TCP"}]}


def test_it_needs_no_metrics(tmp_path: Path) -> None:
    only = render(tmp_path, {"remote": {**TLS, "port": 9180}, "metrics": {"enabled": False}})
    assert [port["name"] for port in only["Service"]["spec"]["ports"]] == ["remote"]
    assert [port["name"] for port in pod_of(only)["containers"][0]["ports"]] == ["remote"]
    (rule,) = only["NetworkPolicy"]["spec"]["ingress"]
    assert rule["ports"] == [{"port": 9180, "protocol": "TCP"}]


def documented(page: str) -> dict[str, Any]:
    """The table of a Kubernetes service on a page."""
    blocks = re.findall(
        r"^```toml\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )
    (block,) = [one for one in blocks if "[kubernetes]" in one]
    table: dict[str, Any] = tomllib.loads(block)["kubernetes"]
    return table


def manifest_of(client: dict[str, dict[str, Any]], folder: Path) -> FleetFile:
    file = folder / "fleet.toml"
    file.write_text(client["ConfigMap"]["data"]["fleet.toml"])
    return read_fleet_file(file)


def test_the_client_finds_every_node_by_the_table_that_is_documented(
    chart: dict[str, dict[str, Any]],
    client: dict[str, dict[str, Any]],
    api: ClusterApi,
    tmp_path: Path,
) -> None:
    own = manifest_of(client, tmp_path).kubernetes
    assert own is not None
    tables = [documented(page) for page in PAGES]
    named = [(one["service"], one["port"]) for one in tables]
    for service, port in (*named, (own.service, own.port)):
        # What the control plane makes of the Service and of two of its pods.
        assert service == chart["Service"]["metadata"]["name"]
        ports = tuple((one["name"], one["port"]) for one in chart["Service"]["spec"]["ports"])
        pods = [endpoint(f"10.1.0.{n}", f"node-{n}", f"stallward-{n}") for n in (1, 2)]
        api.slices = [endpoint_slice(*pods, ports=ports)]
        file = tmp_path / "found.toml"
        file.write_text(api.table(service=service, port=port))
        found = read_fleet_file(file).kubernetes
        assert found is not None
        assert find_endpoints(found) == {"node-1": "10.1.0.1:7443", "node-2": "10.1.0.2:7443"}


def test_the_clients_pod_has_one_right_and_the_files_that_it_looks_for(
    client: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    (rule,) = client["Role"]["rules"]
    assert rule == {
        "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]
    }  # fmt: skip
    pod = client["Pod"]["spec"]
    account = client["ServiceAccount"]["metadata"]["name"]
    assert pod["serviceAccountName"] == account
    assert [one["name"] for one in client["RoleBinding"]["subjects"]] == [account]
    (container,) = pod["containers"]
    rights = container["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert not rights["allowPrivilegeEscalation"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["workingDir"] == mounts["state"], "the file of the rollout stays"
    sources = next(one for one in pod["volumes"] if one["name"] == "config")["projected"]
    (secret,) = [one["secret"] for one in sources["sources"] if "secret" in one]
    places = {Path(mounts["config"]) / item["path"] for item in secret["items"]}
    tls = manifest_of(client, tmp_path).tls
    assert tls is not None
    assert places == {tls / name for name in (AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE)}


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_client_fits_the_schema_of_kubernetes(
    client: dict[str, dict[str, Any]], version: str
) -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="run scripts/setup.sh checks"
    )
    assert len(client) == len(list(yaml.safe_load_all(CLIENT.read_text())))
    for one in client.values():
        kubernetes_validate.validate(one, version, strict=True)
