"""The chart of ``deploy/chart``, rendered by Helm itself."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import parse_config

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/chart"
TLS = {"enabled": True, "secretName": "node-tls", "operators": ["ops.example.org"]}
COLLECT = {"nodes": ["node-7.example.org"], "to": "s3://bucket/recordings"}
EVERYTHING: Mapping[str, Any] = {
    "collect": COLLECT,
    "dashboard": {"enabled": True},
    "podMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "remote": TLS,
}
_HELM = shutil.which("helm") or str(ROOT / "build/helm/bin/helm")

needs_helm = pytest.mark.skipif(
    not Path(_HELM).exists(),
    reason="helm is not installed: run scripts/setup.sh helm, which builds it where there is Go",
)


def helm(
    folder: Path, command: Sequence[str], values: Mapping[str, Any]
) -> subprocess.CompletedProcess[str]:
    """Run Helm on the chart with values of a user."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    return subprocess.run(
        [_HELM, *command, "--values", file],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def render(
    folder: Path,
    values: Mapping[str, Any] = EVERYTHING,
    *,
    settings: Sequence[str] = (),
    release: str = "stallward",
) -> dict[str, dict[str, Any]]:
    """The objects of the chart by kind; those of the hook have "uninstall" before their kind.

    Args:
        folder: Where the values may be written.
        values: What a user's file of values says.
        settings: What the user gives by ``--set``.
        release: The name of the release.
    """
    command = ["template", release, str(CHART), "--namespace", "guard", "--kube-version", "1.33"]
    done = helm(folder, [*command, *(f"--set={one}" for one in settings)], values)
    assert done.returncode == 0, done.stderr
    objects: dict[str, dict[str, Any]] = {}
    for one in yaml.safe_load_all(done.stdout):
        hook = "helm.sh/hook" in one["metadata"].get("annotations", {})
        key = f"uninstall {one['kind']}" if hook else one["kind"]
        if key == "CronJob" and len(values["collect"]["nodes"]) > 1:
            key = f"CronJob of {one['metadata']['annotations']['stallward.io/node']}"
        if key == "ConfigMap" and one["metadata"]["name"].endswith("-dashboard"):
            key = "dashboard"
        assert key not in objects
        objects[key] = one
    return objects


def refusal(folder: Path, values: Mapping[str, Any], *, version: str = "1.33") -> str:
    """Why Helm refuses values."""
    done = helm(folder, ["template", "x", str(CHART), "--kube-version", version], values)
    assert done.returncode != 0, done.stdout
    return done.stderr


def pod_of(chart: Mapping[str, Any]) -> dict[str, Any]:
    """The pod of the daemon."""
    pod: dict[str, Any] = chart["DaemonSet"]["spec"]["template"]["spec"]
    return pod


def configuration(chart: Mapping[str, Any]) -> DaemonConfig:
    """What the daemon reads."""
    return parse_config(chart["ConfigMap"]["data"]["stallward.toml"])
