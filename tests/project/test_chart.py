"""The Helm chart, rendered by Helm itself."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_chart import (
    CHART,
    EVERYTHING,
    ROOT,
    TLS,
    configuration,
    helm,
    needs_helm,
    pod_of,
    refusal,
    render,
)
from test_docs import unknown_words
from unit_settings import config_of, settings

from stallward.actuator.config.load import parse_config
from stallward.kubernetes.server import server_of

KUBERNETES = ("1.29", "1.33", "1.36")
"""The oldest that the chart allows, and newer ones."""
CONFIG = "/etc/stallward/stallward.toml"

pytestmark = needs_helm


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return render(tmp_path_factory.mktemp("chart"))


def test_a_linter_finds_nothing(tmp_path: Path) -> None:
    done = helm(tmp_path, ["lint", "--strict", "--quiet", str(CHART)], EVERYTHING)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", KUBERNETES)
def test_what_is_rendered_fits_the_schema_of_kubernetes(
    chart: dict[str, dict[str, Any]], version: str
) -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="run scripts/setup.sh checks"
    )
    assert set(chart) == {
        "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "Service",
        "PodMonitor", "PrometheusRule", "NetworkPolicy", "dashboard", "uninstall ServiceAccount", "uninstall Role",
        "uninstall RoleBinding", "uninstall Job", "CronJob",
    }  # fmt: skip
    for kind, one in chart.items():
        # The schemas of these are the operator's: test_custom_resources.py
        if kind not in {"PodMonitor", "PrometheusRule"}:
            kubernetes_validate.validate(one, version, strict=True)
    broken = {**chart["DaemonSet"], "spec": {"template": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_the_daemon_has_the_rights_of_the_unit_and_no_more(
    chart: dict[str, dict[str, Any]],
) -> None:
    pod = pod_of(chart)
    (daemon,) = pod["containers"]
    (unit,) = settings(config_of())["CapabilityBoundingSet"]
    granted = {f"CAP_{one}" for one in daemon["securityContext"]["capabilities"]["add"]}
    # The unit lifts the limit of locked memory instead, which a pod cannot.
    assert granted == {*unit.split(), "CAP_IPC_LOCK"}
    for container in (*pod["initContainers"], daemon):
        rights = container["securityContext"]
        assert rights["capabilities"]["drop"] == ["ALL"]
        assert not rights["privileged"]
        assert not rights["allowPrivilegeEscalation"]
        assert rights["readOnlyRootFilesystem"]
        assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
        added = {f"CAP_{one}" for one in rights["capabilities"]["add"]}
        assert added == granted - (set() if container is daemon else {"CAP_SYS_PTRACE"})
    assert {"hostNetwork", "hostIPC"}.isdisjoint(pod)


def test_only_the_daemon_may_ask_the_cluster_and_only_for_pods(
    chart: dict[str, dict[str, Any]],
) -> None:
    (rule,) = chart["ClusterRole"]["rules"]
    assert rule == {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
    binding, account = chart["ClusterRoleBinding"], chart["ServiceAccount"]["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account, "namespace": "guard"}
    ]
    assert binding["roleRef"]["name"] == chart["ClusterRole"]["metadata"]["name"]
    pod = pod_of(chart)
    assert pod["serviceAccountName"] == account
    assert not pod["automountServiceAccountToken"]
    (token,) = [volume for volume in pod["volumes"] if "projected" in volume]
    files = {
        source.get("path") or source["items"][0]["path"]
        for one in token["projected"]["sources"]
        for source in one.values()
    }
    kubernetes = configuration(chart).kubernetes
    assert files == {kubernetes.token.name, kubernetes.ca.name}
    for container in (*pod["initContainers"], *pod["containers"]):
        places = [m["mountPath"] for m in container["volumeMounts"] if m["name"] == token["name"]]
        daemon = container["name"] == "stallward"
        assert places == ([str(kubernetes.token.parent)] if daemon else [])


def test_the_pods_of_a_node_can_come_from_its_kubelet_without_a_right_to_those_of_others(
    tmp_path: Path,
) -> None:
    chart = render(tmp_path, {"config": {"kubernetes": {"source": "kubelet"}}})
    (rule,) = chart["ClusterRole"]["rules"]
    assert rule == {
        "apiGroups": [""],
        "resources": ["nodes/pods", "nodes/configz"],
        "verbs": ["get"],
    }
    (daemon,) = pod_of(chart)["containers"]
    environment = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in daemon["env"]}
    assert environment == {"NODE_NAME": "spec.nodeName", "NODE_IP": "status.hostIP"}
    kubernetes = configuration(chart).kubernetes
    assert server_of(kubernetes, {"NODE_IP": "10.0.0.7"}) == "https://10.0.0.7:10250"
    (egress,) = chart["NetworkPolicy"]["spec"]["egress"]
    assert egress == {"ports": [{"port": 10250, "protocol": "TCP"}]}


def test_pods_from_a_file_take_no_right_and_no_way_to_the_cluster(tmp_path: Path) -> None:
    kubernetes = {"source": "file", "path": "/var/lib/stallward/pods.json"}
    chart = render(tmp_path, {"config": {"kubernetes": kubernetes}})
    assert configuration(chart).kubernetes.source == "file"
    assert chart["ClusterRole"]["rules"] == []
    assert chart["NetworkPolicy"]["spec"]["egress"] == []
    more = {
        "config": {
            "kubernetes": kubernetes,
            "latency": {"source": "prometheus", "port": 9100, "metric": "x"},
        },
        "networkPolicy": {"egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}]},
    }
    egress = render(tmp_path, more)["NetworkPolicy"]["spec"]["egress"]
    assert [port["port"] for rule in egress for port in rule["ports"]] == [9100, 53]


def test_the_configuration_is_valid_and_its_places_are_mounted(
    chart: dict[str, dict[str, Any]],
) -> None:
    config = configuration(chart)
    assert config.follows_pods
    assert config.control.dry_run
    pod = pod_of(chart)
    (daemon,) = pod["containers"]
    writable = {
        Path(one["mountPath"]) for one in daemon["volumeMounts"] if not one.get("readOnly")
    }
    assert config.record is not None
    assert config.policy.store is not None
    for place in (
        config.node.cgroup,
        config.service.socket,
        config.journal.path,
        config.record.dir,
        config.policy.store,
    ):
        assert writable & {place, *place.parents}, f"{place} cannot be written"
    (environment,) = daemon["env"]
    field = environment["valueFrom"]["fieldRef"]["fieldPath"]
    assert (environment["name"], field) == ("NODE_NAME", "spec.nodeName")
    for container in (*pod["initContainers"], daemon):
        assert unknown_words(container["args"]) == []
        assert container["args"][-2:] == ["--config", CONFIG]
        assert str(Path(CONFIG).parent) in {m["mountPath"] for m in container["volumeMounts"]}
    named = {m["name"] for c in (*pod["initContainers"], daemon) for m in c["volumeMounts"]}
    assert named == {volume["name"] for volume in pod["volumes"]}


def test_the_restorer_is_in_a_container_of_its_own_that_ends_after_the_daemon(
    chart: dict[str, dict[str, Any]],
) -> None:
    pod = pod_of(chart)
    once, stays = pod["initContainers"]
    assert once["args"][0] == stays["args"][0] == "restore"
    assert "restartPolicy" not in once, "it ends before the daemon starts"
    assert "--watch" not in once["args"]
    # An init container that is restarted stays beside the others, and is ended when they are dead.
    assert stays["restartPolicy"] == "Always"
    assert "--watch" in stays["args"]
    (daemon,) = pod["containers"]
    journal = configuration(chart).journal.path.parent
    hosts = {v["name"]: v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v}
    for container in (once, stays, daemon):
        assert container["image"] == daemon["image"]
        mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
        assert hosts[mounts[str(journal)]] == "/run/stallward", "the journal outlives the pod"
        assert hosts[mounts["/run/stallward-node"]] == "/run/stallward-node"
        assert hosts[mounts["/host/cgroup"]] == "/sys/fs/cgroup"
    assert pod["hostPID"], "the journal names processes of the node"


def test_before_anything_is_removed_all_daemons_end_in_order(
    chart: dict[str, dict[str, Any]],
) -> None:
    name = chart["DaemonSet"]["metadata"]["name"]
    for kind in ("ServiceAccount", "Role", "RoleBinding", "Job"):
        notes = chart[f"uninstall {kind}"]["metadata"]["annotations"]
        assert notes["helm.sh/hook"] == "pre-delete"
        assert "hook-succeeded" in notes["helm.sh/hook-delete-policy"], "nothing stays"
        first = int(notes.get("helm.sh/hook-weight", 0))
        assert (first < 0) == (kind != "Job"), "its rights are there before it"
    (rule,) = chart["uninstall Role"]["rules"]
    assert (rule["resources"], rule["resourceNames"]) == (["daemonsets"], [name])
    assert set(rule["verbs"]) == {"get", "list", "watch", "delete"}
    job = chart["uninstall Job"]["spec"]["template"]
    account = chart["uninstall ServiceAccount"]["metadata"]["name"]
    assert job["spec"]["serviceAccountName"] == account
    (subject,) = chart["uninstall RoleBinding"]["subjects"]
    assert (subject["name"], subject["namespace"]) == (account, "guard")
    (container,) = job["spec"]["containers"]
    assert container["args"][:2] == ["delete", f"daemonset/{name}"]
    assert "--cascade=foreground" in container["args"], "it is gone when its pods are"
    assert "--wait" in container["args"]
    selected = chart["DaemonSet"]["spec"]["selector"]["matchLabels"]
    assert selected.items() - job["metadata"]["labels"].items(), "no policy of the daemons is its"


def test_whatever_selects_the_pods_finds_them_and_their_port(
    chart: dict[str, dict[str, Any]],
) -> None:
    template = chart["DaemonSet"]["spec"]["template"]
    labels = template["metadata"]["labels"]
    monitor, service = chart["PodMonitor"]["spec"], chart["Service"]["spec"]
    policy = chart["NetworkPolicy"]["spec"]
    for selected in (
        chart["DaemonSet"]["spec"]["selector"]["matchLabels"],
        monitor["selector"]["matchLabels"],
        service["selector"],
        policy["podSelector"]["matchLabels"],
    ):
        assert selected.items() <= labels.items()
    (daemon,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in daemon["ports"]}
    assert monitor["podMetricsEndpoints"][0]["port"] == "metrics"
    # The endpoints of a headless service have the pods' ports.
    assert {p["name"]: (p["targetPort"], p["port"]) for p in service["ports"]} == {
        name: (name, number) for name, number in ports.items()
    }
    assert [rule["ports"][0]["port"] for rule in policy["ingress"]] == list(ports.values())
    config = configuration(chart)
    assert config.service.metrics == f"0.0.0.0:{ports['metrics']}"
    assert config.remote is not None
    assert config.remote.address == f"0.0.0.0:{ports['remote']}"


def test_the_dashboard_is_that_of_the_documentation(chart: dict[str, dict[str, Any]]) -> None:
    (text,) = chart["dashboard"]["data"].values()
    documented = (ROOT / "docs/reference/dashboard.json").read_text()
    assert json.loads(text) == json.loads(documented)
    assert chart["dashboard"]["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_alerts_are_those_of_the_documentation(chart: dict[str, dict[str, Any]]) -> None:
    documented: list[Any] = []
    for name in ("alerts", "alerts-kubernetes"):
        text = (ROOT / f"docs/reference/{name}.yml").read_text()
        documented += yaml.safe_load(text)["groups"]
    assert chart["PrometheusRule"]["spec"]["groups"] == documented


def test_a_pod_is_ready_while_the_loop_ticks(chart: dict[str, dict[str, Any]]) -> None:
    (daemon,) = pod_of(chart)["containers"]
    assert daemon["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "metrics"}


def test_the_values_say_what_the_daemon_is_configured_with(tmp_path: Path) -> None:
    tables = {
        "control": {"dry_run": False, "slo_ms": 12.5, "controller": "partition"},
        "protected": {"pod": {"selector": "app in (a,b)", "namespace": "shop"}},
        "background": [
            {"name": "batch", "pod": {"qos": ["BestEffort", "Burstable"], "selector": "x"}},
            {"name": "index", "pod": {"role": 'say "no" \\ é'}, "floor_bytes": 67108864},
        ],
        "guard": {"max_pause_s": 2},
        "kubernetes": {"cgroup_parent": "docker/1/kubelet"},
        "service": {"report_mode": 416},
    }
    text = render(tmp_path, {"config": tables})["ConfigMap"]["data"]["stallward.toml"]
    read = tomllib.loads(text)
    for name, table in tables.items():
        if isinstance(table, dict):
            assert {**read[name], **table} == read[name]
        else:
            assert table == read[name]
    config = parse_config(text)
    assert (config.control.slo_ms, config.guard.max_pause_s) == (12.5, 2.0)
    assert config.background[1].floor_bytes == 64 << 20


def test_a_change_of_the_configuration_replaces_the_pods(
    chart: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    def checksum(objects: Mapping[str, Any]) -> str:
        notes = objects["DaemonSet"]["spec"]["template"]["metadata"]["annotations"]
        return str(notes["checksum/config"])

    changed = render(tmp_path, {**EVERYTHING, "config": {"control": {"dry_run": False}}})
    assert checksum(changed) != checksum(chart)
    assert not configuration(changed).control.dry_run
    assert configuration(changed).protected == configuration(chart).protected
    assert checksum(render(tmp_path, {**EVERYTHING, "maxUnavailable": "10%"})) == checksum(chart)


def test_without_metrics_nothing_listens(tmp_path: Path) -> None:
    off = render(tmp_path, {"metrics": {"enabled": False}})
    assert {"Service", "PodMonitor", "PrometheusRule", "dashboard"}.isdisjoint(off)
    assert off["NetworkPolicy"]["spec"]["ingress"] == []
    assert configuration(off).service.metrics is None
    assert "ports" not in pod_of(off)["containers"][0]


def test_the_port_of_the_latencies_may_be_asked(
    chart: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    latency = {"source": "prometheus", "port": 9100, "metric": "x"}
    with_port = render(tmp_path, {"config": {"latency": latency}})
    allowed = [
        port for rule in with_port["NetworkPolicy"]["spec"]["egress"] for port in rule["ports"]
    ]
    assert {"port": 9100, "protocol": "TCP"} in allowed
    assert configuration(with_port).latencies_of_pods == (True,)
    ((without),) = chart["NetworkPolicy"]["spec"]["egress"]
    assert {port["port"] for port in without["ports"]} == {443, 6443}


def test_several_applications_are_protected_and_the_ports_of_their_latencies_may_be_asked(
    tmp_path: Path,
) -> None:
    protected = [
        {
            "name": name,
            "slo_ms": 10.0,
            "pod": {"selector": f"app={name}"},
            "latency": {"source": "prometheus", "metric": "x", **where},
        }
        for name, where in (
            ("db", {"port": 9187}),
            ("web", {"port": 9113}),
            ("cache", {"port": 9113}),
            ("far", {"url": "http://127.0.0.1:9000/metrics"}),
        )
    ]
    chart = render(tmp_path, {"config": {"protected": protected}})
    config = configuration(chart)
    assert [one.name for one in config.applications] == ["db", "web", "cache", "far"]
    assert config.latencies_of_pods == (True, True, True, False)
    _, latencies = chart["NetworkPolicy"]["spec"]["egress"]
    assert latencies == {"ports": [{"port": n, "protocol": "TCP"} for n in (9187, 9113)]}


def test_parts_can_be_left_out(tmp_path: Path) -> None:
    less = render(tmp_path, {"networkPolicy": {"enabled": False}, "uninstall": {"wait": False}})
    assert set(less) == {
        "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "Service",
    }  # fmt: skip


def test_two_releases_share_no_name(chart: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    other = render(tmp_path, release="test")
    names = {one["metadata"]["name"] for one in chart.values()}
    assert names.isdisjoint(one["metadata"]["name"] for one in other.values())


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"dryRun": True}, "dryRun"),
        ({"config": {"background": []}}, "background"),
        ({"config": {"protected": []}}, "protected"),
        ({"config": {"protected": ["web"]}}, "protected"),
        ({"config": {"journal": {"path": "/x"}}}, "journal"),
        ({"config": {"kubernetes": {"source": "nodes"}}}, "source"),
        ({"config": {"service": {"socket": "/x"}}}, "service"),
        ({"config": {"remote": {"address": "0.0.0.0:7443"}}}, "remote"),
        ({"config": {"control": {"dry_run": "no"}}}, "dry_run"),
        ({"image": {"repository": ""}}, "repository"),
        ({"metrics": {"port": 80}}, "port"),
        ({"remote": {"enabled": True}}, "remote.secretName"),
        ({"remote": {**TLS, "port": 9180}}, "remote.port"),
        ({"remote": {**TLS, "port": 443}}, "port"),
        ({"remote": {**TLS, "operators": [""]}}, "operators"),
        ({"collect": {"nodes": ["node-7"]}}, "collect.to"),
        ({"collect": {"nodes": ["node 7"], "to": "s3://b/r"}}, "nodes"),
        ({"hostPaths": {"run": "run/stallward"}}, "run"),
        ({"metrics": {"enabled": False}, "podMonitor": {"enabled": True}}, "metrics.enabled"),
        (
            {"metrics": {"enabled": False}, "prometheusRule": {"enabled": True}},
            "metrics.enabled",
        ),
    ],
    ids=str,
)
def test_values_that_cannot_be_meant_are_refused_by_name(
    tmp_path: Path, values: dict[str, Any], named: str
) -> None:
    assert named in refusal(tmp_path, values)


def test_a_cluster_that_ends_sidecars_at_any_time_is_refused(tmp_path: Path) -> None:
    assert "kubeVersion" in refusal(tmp_path, {}, version="1.28")
