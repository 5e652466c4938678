"""The imports of the daemon's small processes: each megabyte of them stays in memory for good."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from stallward.actuator.parts import Part, load_part

MOST_MODULES: Final = 187
MOST_LINES: Final = 30_415
"""What the loop may import of our own code, which runs as root: a person must be able to read it.
Lower these when less is imported; raise them only with the reason in the same commit."""


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("actuator.guardian", {"numpy", "google", "grpc", "onnxruntime", "psutil"}),
        (
            "actuator.guardian.restorer",
            {"numpy", "google", "grpc", "onnxruntime", "psutil", "typer"},
        ),
        (
            "papers.levers.reader.reader_process",
            {"numpy", "google", "grpc", "onnxruntime", "psutil"},
        ),
        ("actuator.loop", {"grpc", "pandas", "prometheus_client", "psutil"}),
        ("actuator.service", {"onnxruntime", "pandas"}),
    ],
)
def test_processes_of_the_daemon_import_nothing_heavy(module: str, without: set[str]) -> None:
    code = (
        f"import sys, stallward.{module}\n"
        f"print(*sorted({without!r} & {{name.split('.')[0] for name in sys.modules}}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


GROUPS: Final = """
[protected]
group = "app"
[[background]]
name = "b"
group = "batch"
[service]
socket = "/run/s.sock"
[journal]
path = "/run/journal"
"""
"""A configuration of two groups, and what stands in every other place by default."""
SEVERAL: Final = """
[[protected]]
name = "one"
group = "app"
[[protected]]
name = "two"
group = "app2"
"""
PODS: Final = {Part.LABEL_SELECTOR, Part.POD_GROUPING, Part.PODS}
ASKED_FOR: Final = {
    "groups": (GROUPS, set()),
    "lines": (
        GROUPS + '[latency]\nsource = "lines"\npath = "/var/log/x"\nlatency = "0"',
        {Part.LATENCY_LINES},
    ),
    "statsd": (
        GROUPS + '[latency]\nsource = "statsd"\nmetric = "x"\nlisten = "127.0.0.1:8125"',
        {Part.LATENCY_CHANNEL},
    ),
    "prometheus": (
        GROUPS + '[latency]\nsource = "prometheus"\nurl = "http://127.0.0.1:1/"\nmetric = "x"',
        {Part.LATENCY_CHANNEL, Part.SERIES},
    ),
    "work": (
        GROUPS.replace('"batch"', '"batch"\nwork = { source = "file", path = "/run/n" }'),
        {Part.WORK},
    ),
    "page cache": (GROUPS + '[node]\npage_cache = "auto"', {Part.PAGE_CACHE}),
    "trees": (
        GROUPS.replace('group = "batch"', 'processes = { pidfile = "/run/b.pid" }'),
        {Part.TREES, Part.TREE_LEVERS, Part.TREE_READER},
    ),
    "a group of the kubelet": (
        GROUPS.replace('group = "batch"', 'group = "kubepods/pod1"'),
        {Part.KUBELET_GROUP},
    ),
    "a pod": (
        GROUPS.replace('group = "batch"', 'pod = { selector = "app=batch" }'),
        PODS,
    ),
    "pods that share a slot": (
        GROUPS.replace('group = "batch"', 'pod = { selector = "app=batch", group_by = "all" }'),
        PODS | {Part.PODS_READER},
    ),
    "applications": (
        GROUPS.replace('[protected]\ngroup = "app"', SEVERAL),
        {Part.APPLICATIONS_READER},
    ),
}


def _modules(parts: Iterable[Part]) -> set[str]:
    return {part.value.partition(":")[0] for part in parts}


def _loop_of(configuration: str, folder: Path) -> dict[str, Any]:
    """What a loop of a configuration loads; see the program."""
    program = [sys.executable, str(Path(__file__).with_name("loaded_modules.py")), str(folder)]
    run = subprocess.run(program, input=configuration, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    assert found["kind"] == "v2"
    return found


@pytest.mark.slow
def test_the_loop_imports_little_of_our_own_code(tmp_path: Path) -> None:
    """With a default configuration, from its start until it ticks."""
    imported = _loop_of(GROUPS, tmp_path)["started"]
    texts = [Path(file).read_text("utf-8") for file in imported.values()]
    assert len(texts) <= MOST_MODULES
    assert sum(len(text.splitlines()) for text in texts) <= MOST_LINES
    assert {name.split(".")[1] for name in imported} == {"actuator", "agent", "proto"}
    named = ("static", "latd", "onnx", "policy_file")
    unnamed = {f"stallward.agent.controllers.{name}" for name in named}
    assert not unnamed & imported.keys(), "it imports the controllers that are named"


@pytest.mark.slow
@pytest.mark.parametrize("what", ASKED_FOR)
def test_the_loop_loads_the_parts_that_are_asked_for_at_its_start(
    what: str, tmp_path: Path
) -> None:
    configuration, parts = ASKED_FOR[what]
    found = _loop_of(configuration, tmp_path)
    assert found["started"].keys() & _modules(Part) == _modules(parts)
    assert found["added"] == [], "no tick imports anything"


@pytest.mark.parametrize("part", Part)
def test_every_part_is_where_the_table_says(part: Part) -> None:
    assert callable(load_part(part))
