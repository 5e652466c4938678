"""What is written for operators fits the definitions of their resources."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_chart import EVERYTHING, ROOT, needs_helm, render

pytestmark = pytest.mark.reaches("deploy/")

jsonschema = pytest.importorskip("jsonschema", reason="run scripts/setup.sh checks")


def strict(schema: Any) -> Any:
    """The same schema without room for unknown fields, which the API server would drop.

    Where a definition says that it keeps unknown fields, it may have any.
    """
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    is_table = isinstance(made.get("properties"), dict) and "type" in made
    if is_table and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def schema_of(file: str, version: str) -> Any:
    """The schema of one version in a definition; skips where that is not here."""
    path = ROOT / "build/crds" / file
    if not path.exists():
        pytest.skip("the definitions are not here: run scripts/setup.sh crds, where there is Go")
    versions = yaml.load(path.read_text(), yaml.CSafeLoader)["spec"]["versions"]
    (schema,) = [one["schema"]["openAPIV3Schema"] for one in versions if one["name"] == version]
    return strict(schema)


def check(resource: dict[str, Any], schema: Any) -> None:
    """It fits, and would not with a name that is misspelt anywhere in its specification."""
    jsonschema.validate(resource, schema)
    broken = copy.deepcopy(resource)
    broken["spec"]["no-such-field"] = 1
    with pytest.raises(jsonschema.ValidationError, match="no-such-field"):
        jsonschema.validate(broken, schema)


@pytest.mark.slow
def test_the_ray_job_fits_the_definition_of_its_operator() -> None:
    schema = schema_of("ray.io_rayjobs.yaml", "v1")
    objects = yaml.safe_load_all((ROOT / "deploy/rayjob.yaml").read_text())
    (job,) = [one for one in objects if one["kind"] == "RayJob"]
    check(job, schema)
    job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["containres"] = []
    with pytest.raises(jsonschema.ValidationError, match="containres"):
        jsonschema.validate(job, schema)


@needs_helm
def test_the_pod_monitor_fits_the_definition_of_its_operator(tmp_path: Path) -> None:
    schema = schema_of("monitoring.coreos.com_podmonitors.yaml", "v1")
    monitor = render(tmp_path, EVERYTHING)["PodMonitor"]
    check(monitor, schema)
    monitor["spec"]["podMetricsEndpoints"][0]["relabelings"][0]["targetLable"] = "x"
    with pytest.raises(jsonschema.ValidationError, match="targetLable"):
        jsonschema.validate(monitor, schema)
