"""Only one file names the roots of the kernel's files; all other code takes them as arguments."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
FOLDERS = ("proto", "agent", "models", "actuator", "env", "training", "evaluation")
DEFAULTS = "actuator/stallward/actuator/kernel/paths.py"
"""The only file that names the roots."""
_ROOT = re.compile(r"(?<![\w./}*])/(?:proc|sys|run)(?![\w-])")
"""One of the roots at the start of a path, anywhere in a text."""

SIGNALS = "names where a signal comes from, for people and for generated pages; nothing opens it"
EXAMPLE = "an example in a message"
OWN = "reads about its own process, which has no other root"
INSIDE = "a program inside a sandbox: it is started by a scenario's command, on this machine"
UNIT = "names folders as a systemd unit does; nothing opens them"
ALLOWED = {
    "actuator/stallward/actuator/doctor/latency.py": EXAMPLE,
    "actuator/stallward/actuator/cli/desired_options.py": EXAMPLE,
    "actuator/stallward/actuator/cli/unit/places.py": UNIT,
    "actuator/stallward/actuator/kernel/process_spec.py": EXAMPLE,
    "actuator/stallward/actuator/lens/reference_page.py": SIGNALS,
    "actuator/stallward/actuator/node/find_targets.py": EXAMPLE,
    "actuator/stallward/actuator/runtime/process_setup.py": OWN,
    "actuator/stallward/actuator/sensors/page_cache/cgroup_ids.py": OWN,
    "actuator/stallward/actuator/sensors/page_cache/counters.py": OWN,
    "actuator/stallward/actuator/sensors/reference_page.py": SIGNALS,
    "actuator/stallward/actuator/service/socket_files.py": OWN,
    "actuator/stallward/actuator/sensors/missing.py": SIGNALS,
    "actuator/stallward/actuator/sensors/signal_table.py": SIGNALS,
    "env/stallward/env/sandbox/launch.py": INSIDE,
    "env/stallward/env/sandbox/peers/managed_groups.py": INSIDE,
    "env/stallward/env/sandbox/peers/programs.py": INSIDE,
    "env/stallward/env/sandbox/peers/running.py": INSIDE,
    "env/stallward/env/workloads/postgres.py": INSIDE,
    "env/stallward/env/workloads/program_loop.py": INSIDE,
    "evaluation/stallward/evaluation/bench/memory.py": OWN,
}
"""Files that may name a root, and why."""

ENTRY_POINT = "an entry point; its caller may pass other roots"
USES_DEFAULTS = {
    "actuator/stallward/actuator/config/tables.py": "a configuration without roots",
    "actuator/stallward/actuator/kernel/hierarchies.py": "the name of the root in mounts",
    "actuator/stallward/actuator/guardian/restore_command.py": ENTRY_POINT,
    "actuator/stallward/actuator/guardian/restorer.py": ENTRY_POINT,
    "actuator/stallward/actuator/runtime/locks.py": "there is one lock for the machine's settings",
    "actuator/stallward/actuator/service/notices/journald.py": "systemd's socket is in one place",
    "env/stallward/env/sandbox/peers/programs.py": ENTRY_POINT,
    "env/stallward/env/sandbox/sandbox.py": ENTRY_POINT,
    "evaluation/stallward/evaluation/bench/kills/bench.py": ENTRY_POINT,
    "evaluation/stallward/evaluation/bench/pods.py": ENTRY_POINT,
    "evaluation/stallward/evaluation/bench/sample_cost.py": ENTRY_POINT,
    "actuator/stallward/actuator/cli/apply.py": ENTRY_POINT,
    "actuator/stallward/actuator/cli/connect.py": ENTRY_POINT,
    "actuator/stallward/actuator/cli/node.py": ENTRY_POINT,
    "evaluation/stallward/evaluation/cli/bench/trace.py": ENTRY_POINT,
    "evaluation/stallward/evaluation/cli/trace/command.py": ENTRY_POINT,
    "evaluation/stallward/evaluation/demo/run.py": ENTRY_POINT,
    "evaluation/stallward/evaluation/blocks/live.py": ENTRY_POINT,
    "evaluation/stallward/evaluation/comparison/left_out.py": ENTRY_POINT,
    "evaluation/stallward/evaluation/replication/batch_session.py": ENTRY_POINT,
    "evaluation/stallward/evaluation/replication/dasec/session.py": ENTRY_POINT,
    "evaluation/stallward/evaluation/replication/latd/session.py": ENTRY_POINT,
    "env/stallward/env/recording/node_facts.py": ENTRY_POINT,
    "evaluation/stallward/evaluation/cli/lens/resident.py": ENTRY_POINT,
    "evaluation/stallward/evaluation/profiling/command_run.py": ENTRY_POINT,
}
"""Files that may use the roots of this machine by default, and why."""


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and text of every string of a module that is not a docstring.

    A computed part of an f-string is ``{}`` in its text.
    """
    seen: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            seen.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            seen.update(map(id, node.values))
            parts = (str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
            yield node.lineno, "".join(parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in seen:
            if isinstance(node.value, str):
                yield node.lineno, node.value
            elif isinstance(node.value, bytes):
                yield node.lineno, node.value.decode("latin-1")


def roots_in(source: str) -> list[tuple[int, str]]:
    return [(line, text) for line, text in texts(ast.parse(source)) if _ROOT.search(text)]


def uses_defaults(source: str) -> bool:
    """Whether a module uses the roots of this machine by default."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id in {"DEFAULT_PATHS", "RUN"}:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            given = {keyword.arg for keyword in node.keywords}
            if node.func.id == "Paths" and not given >= {"proc", "cgroup", "sys"}:
                return True
    return False


def shipped() -> dict[str, str]:
    files = [path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py")]
    return {str(path.relative_to(REPOSITORY)): path.read_text("utf-8") for path in files}


def test_only_one_file_names_the_roots() -> None:
    by_file = {name: roots_in(source) for name, source in shipped().items()}
    by_file = {name: lines for name, lines in by_file.items() if lines}
    assert by_file.pop(DEFAULTS)
    unexpected = {name: lines for name, lines in by_file.items() if name not in ALLOWED}
    assert unexpected == {}, f"take roots as arguments; see {DEFAULTS}"
    assert sorted(ALLOWED.keys() - by_file.keys()) == [], "exceptions that are no longer needed"


def test_only_entry_points_use_the_roots_of_this_machine() -> None:
    users = {name for name, source in shipped().items() if uses_defaults(source)}
    assert sorted(users - USES_DEFAULTS.keys() - {DEFAULTS}) == []
    assert sorted(USES_DEFAULTS.keys() - users) == [], "exceptions that are no longer needed"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('Path("/proc")', True),
        ('Path("/proc", pid)', True),
        ('open(f"/proc/{pid}/status")', True),
        ('open(b"/sys/block")', True),
        ('run("cat /run/x.pid")', True),
        ('f"{root}/proc"', False),
        ('"a/run/b"', False),
        ('"**/run.json"', False),
        ('"/process"', False),
        ('"/sys-fs"', False),
        ('"""Reads /proc."""', False),
        ('root / "proc"', False),
    ],
)
def test_a_root_is_found_wherever_a_path_begins_with_it(source: str, *, found: bool) -> None:
    assert bool(roots_in(source)) is found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("Paths()", True),
        ("Paths(proc=proc)", True),
        ("Paths(proc=proc, cgroup=cgroup, sys=sys)", False),
        ("def f(paths: Paths = DEFAULT_PATHS): ...", True),
        ("def f(paths: Paths): ...", False),
    ],
)
def test_defaults_are_found_even_when_some_roots_are_given(source: str, *, found: bool) -> None:
    assert uses_defaults(source) is found


LOOKS_AROUND = """
import os, sys
from dataclasses import replace
from pathlib import Path
from around_the_guardian import config_in
from stallward.actuator.doctor.doctor import examine
from stallward.actuator.config.daemon_config import NodeConfig
from stallward.actuator.kernel.paths import Paths

folder = Path(sys.argv[1])
own = Paths(proc=folder / "proc", cgroup=folder / "cgroup", sys=folder / "sys")
config = config_in(folder, node=NodeConfig.at(own, zone="z"))
opened = []
watching = True

def watch(event, arguments):
    if watching and event in {"open", "os.listdir", "os.scandir"}:
        path = arguments[0]
        path = os.fsdecode(path) if isinstance(path, (bytes, str, os.PathLike)) else ""
        if path.startswith(("/proc", "/sys", "/run")):
            opened.append(path)

sys.addaudithook(watch)
findings = examine(own, config).findings
watching = False
print(len(findings), *opened)
"""


def test_nothing_of_this_machine_is_read_when_other_roots_are_given(tmp_path: Path) -> None:
    """All sensors and levers are opened, on roots that are almost empty."""
    for name in ("proc", "cgroup", "sys"):
        (tmp_path / name).mkdir()
    done = subprocess.run(
        [sys.executable, "-c", LOOKS_AROUND, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tests/actuator")},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    findings, *opened = done.stdout.split()
    assert int(findings) > 10
    assert opened == []
