"""The container files and the manifests for Ray."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from lever_page import lever_rows
from test_docs import unknown_words
from unit_settings import config_of, settings

from stallward.actuator.kernel.privileges import CAPABILITIES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONTAINER_FILES = sorted(DEPLOY.glob("*.Containerfile"))
KUBERNETES = "1.33"
NOT_INSTALLED = "the group `checks` is not installed: run scripts/setup.sh checks"


def name(path: Path) -> str:
    return path.stem


def instructions(file: Path) -> list[tuple[str, str]]:
    """The instructions of a container file with their arguments."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    parts = (line.partition(" ") for line in text.splitlines() if line)
    return [(word, " ".join(rest.split())) for word, _, rest in parts]


def copied(file: Path) -> list[str]:
    """What a container file takes from the repository."""
    copies = [rest.split() for word, rest in instructions(file) if word == "COPY"]
    return [source for words in copies if "--from" not in words[0] for source in words[:-1]]


@pytest.mark.parametrize("file", CONTAINER_FILES, ids=name)
def test_a_linter_finds_nothing_in_a_container_file(file: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip(NOT_INSTALLED)
    done = subprocess.run([hadolint, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", CONTAINER_FILES, ids=name)
def test_what_is_copied_is_there_and_sent_to_the_builder(file: Path) -> None:
    sent = {
        line.removeprefix("!").rstrip("/")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    for source in copied(file):
        assert (ROOT / source).exists()
        assert source.rstrip("/") in sent or (
            source.startswith("scripts/") and "scripts/*.txt" in sent
        )


@pytest.mark.parametrize("file", CONTAINER_FILES, ids=name)
def test_a_container_starts_a_command_that_exists(file: Path) -> None:
    found = dict(instructions(file))
    (program,) = json.loads(found["ENTRYPOINT"])
    assert program == "/opt/stallward/bin/stallward"
    assert ("COPY", "--from=build /opt/stallward /opt/stallward") in instructions(file)
    words = json.loads(found["CMD"])
    assert words == ["--help"] or unknown_words(words) == []


@pytest.fixture(scope="module")
def ray_job() -> dict[str, Any]:
    """The objects of the manifest for KubeRay, by their kind."""
    objects = list(yaml.safe_load_all((DEPLOY / "rayjob.yaml").read_text()))
    return {one["kind"]: one for one in objects}


def test_the_pods_of_the_ray_job_fit_the_schema_of_kubernetes(ray_job: dict[str, Any]) -> None:
    """The schema of the job itself is the operator's: ``test_custom_resources.py``."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=NOT_INSTALLED)
    kubernetes_validate.validate(ray_job["PersistentVolumeClaim"], KUBERNETES, strict=True)
    cluster = ray_job["RayJob"]["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, **group["template"]}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
        broken = {**pod, "spec": {**pod["spec"], "containres": []}}
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(broken, KUBERNETES, strict=True)


def test_the_ray_job_runs_a_command_on_the_workers_and_keeps_its_files(
    ray_job: dict[str, Any],
) -> None:
    job = ray_job["RayJob"]["spec"]
    program, *words = shlex.split(job["entrypoint"])
    assert program == "stallward"
    assert unknown_words(words) == []
    assert words[-1] == "--ray", "the cluster of the job"
    cluster = job["rayClusterSpec"]
    head = cluster["headGroupSpec"]["template"]["spec"]
    (claim,) = [v["persistentVolumeClaim"]["claimName"] for v in head["volumes"]]
    assert claim == ray_job["PersistentVolumeClaim"]["metadata"]["name"]
    (mount,) = head["containers"][0]["volumeMounts"]
    out = Path(words[words.index("--out") + 1])
    assert Path(mount["mountPath"]) in out.parents, "the pod does not stay"
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert cluster["authOptions"] == {"mode": "token"}
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    images = {c["image"] for pod in pods for c in pod["template"]["spec"]["containers"]}
    assert len(images) == 1, "all nodes have the same versions"
    locked = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    assert cluster["rayVersion"] in {p["version"] for p in locked if p["name"] == "ray"}


def test_the_ray_cluster_fits_the_schema_of_ray() -> None:
    ray = find_spec("ray")
    if ray is None or ray.origin is None:
        pytest.skip("the extra `ray` is not installed")
    import jsonschema  # noqa: PLC0415 - Ray brings it

    schema = json.loads((Path(ray.origin).parent / "autoscaler/ray-schema.json").read_text())
    cluster = yaml.safe_load((DEPLOY / "ray-cluster.yaml").read_text())
    jsonschema.validate(cluster, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**cluster, "max_wrokers": 3}, schema)
    places = [option.partition("=")[2] for option in cluster["docker"]["run_options"]]
    assert "/mnt/stallward:/data" in places


@pytest.mark.reaches("docs/reference/levers.md")
def test_every_capability_that_a_lever_needs_is_granted() -> None:
    (unit,) = settings(config_of())["CapabilityBoundingSet"]
    needed = {name for row in lever_rows() for name in re.findall(r"CAP_\w+", row.rights)}
    assert needed <= set(unit.split())
    assert needed <= {capability.name for capability in CAPABILITIES}
    assert all(row.rights for row in lever_rows())
