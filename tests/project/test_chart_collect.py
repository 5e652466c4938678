"""The chart's CronJobs, which add the recordings of nodes to a catalogue."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from helm_chart import COLLECT, configuration, needs_helm, pod_of, render
from test_docs import unknown_words

pytestmark = [needs_helm, pytest.mark.reaches("deploy/")]

NODES = [f"ip-10-0-{number}-1.eu-west-1.compute.internal" for number in range(60)]


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return render(tmp_path_factory.mktemp("chart"), {"collect": COLLECT})


def job_of(chart: dict[str, dict[str, Any]], kind: str = "CronJob") -> dict[str, Any]:
    """The pod of a CronJob."""
    template: dict[str, Any] = chart[kind]["spec"]["jobTemplate"]["spec"]["template"]
    return template


def test_by_default_nothing_is_collected(tmp_path: Path) -> None:
    assert "CronJob" not in render(tmp_path, {})


def test_its_commands_exist_and_are_of_its_node_and_of_yesterday(
    chart: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    (container,) = job_of(chart)["spec"]["containers"]
    # In place of the program, what writes down how it is called, and fails as it is told to.
    program = tmp_path / "bin" / "stallward"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@" >>"$CALLS"\n[ "$1" != "$FAIL" ]\n')
    program.chmod(0o755)
    given = {one["name"]: one["value"] for one in container["env"]}

    def calls(failing: str = "") -> list[str]:
        written = tmp_path / f"calls{failing}"
        environment = {
            **given,
            "CALLS": str(written),
            "FAIL": failing,
            "PATH": f"{program.parent}:{os.environ['PATH']}",
        }
        done = subprocess.run(
            [*container["command"], *container["args"]], env=environment, check=False, timeout=60
        )
        assert (done.returncode == 0) == (not failing)
        return written.read_text().splitlines()

    record, add = calls()
    assert calls("record") == [record], "what was not recorded is not added"
    for line in (record, add):
        assert unknown_words(line.split()) == []
    today = datetime.now(UTC).date()
    day = re.findall(r"--days (\S+)", record)[0]
    assert day in {str(today - timedelta(days=1)), str(today)}, "midnight may have passed since"
    assert "--node node-7.example.org " in record
    assert record.endswith(f"--out /tmp/{day}")
    assert add == f"catalogue add /tmp/{day} --to s3://bucket/recordings"


def test_it_reads_what_the_daemon_of_its_node_writes(chart: dict[str, dict[str, Any]]) -> None:
    spec = job_of(chart)["spec"]
    (container,) = spec["containers"]
    config = configuration(chart)
    assert config.record is not None
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    recording = mounts[str(config.record.dir)]
    assert f"--from {config.record.dir} " in container["args"][0]
    # The daemon's folder of the node, by its own mount.
    (daemon,) = pod_of(chart)["containers"]
    (state,) = [
        mount
        for mount in daemon["volumeMounts"]
        if Path(mount["mountPath"]) in config.record.dir.parents and mount["name"] == "state"
    ]
    below = config.record.dir.relative_to(state["mountPath"])
    (host,) = [v["hostPath"]["path"] for v in pod_of(chart)["volumes"] if v["name"] == "state"]
    assert volumes[recording["name"]]["hostPath"]["path"] == f"{host}/{below}"
    assert recording["readOnly"]
    assert volumes["config"]["configMap"]["name"] == chart["ConfigMap"]["metadata"]["name"]
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"] == [
        {
            "matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["node-7.example.org"]}
            ]
        }
    ]


def test_it_has_the_rights_to_read_and_no_others(chart: dict[str, dict[str, Any]]) -> None:
    spec = job_of(chart)["spec"]
    assert not spec["automountServiceAccountToken"]
    assert {"hostPID", "hostNetwork", "hostIPC", "serviceAccountName"}.isdisjoint(spec)
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] == 1000, "that of the image"
    (container,) = spec["containers"]
    rights = container["securityContext"]
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert not rights["allowPrivilegeEscalation"]
    assert rights["readOnlyRootFilesystem"]
    writable = {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}
    assert writable == {"/tmp"}
    selected = chart["DaemonSet"]["spec"]["selector"]["matchLabels"]
    labels = job_of(chart)["metadata"]["labels"]
    assert not selected.items() <= labels.items(), "no policy and no Service of the daemons"


def test_the_storage_knows_it_by_a_secret_or_an_account(tmp_path: Path) -> None:
    known = {**COLLECT, "secretName": "bucket", "serviceAccountName": "collector"}
    spec = job_of(render(tmp_path, {"collect": known}))["spec"]
    assert spec["containers"][0]["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    assert spec["serviceAccountName"] == "collector"


def test_each_node_has_one_at_a_time_of_its_own(tmp_path: Path) -> None:
    release = "a-release-with-a-name-of-forty-characters"
    chart = render(tmp_path, {"collect": {**COLLECT, "nodes": NODES}}, release=release)
    jobs = {kind: one for kind, one in chart.items() if kind.startswith("CronJob of ")}
    assert set(jobs) == {f"CronJob of {node}" for node in NODES}
    names = [one["metadata"]["name"] for one in jobs.values()]
    assert len(set(names)) == len(NODES)
    assert max(map(len, names)) <= 52, "the API refuses longer ones"
    times = [one["spec"]["schedule"] for one in jobs.values()]
    assert len(set(times)) > len(NODES) // 2, "they do not come all at once"
    for time in times:
        minute, hour, *rest = time.split()
        assert 10 <= 60 * int(hour) + int(minute) < 130, "the day is over"
        assert int(minute) < 60
        assert rest == ["*", "*", "*"]
    own = {**COLLECT, "schedule": "5 4 * * *"}
    assert render(tmp_path, {"collect": own})["CronJob"]["spec"]["schedule"] == "5 4 * * *"
