"""Whatever `serve` refuses, `doctor` refuses, too: wrong configurations against both."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.evaluation.cli import main

pytestmark = pytest.mark.live

PLAIN = """
[node]
cgroup = "{folder}/no-cgroups"

[protected]
processes = {{ pids = [{pid}] }}

[[background]]
name = "sort"
processes = {{ pids = [{pid2}] }}

[latency]
source = "lines"
path = "{folder}/access.log"
latency = "2"

[control]
dry_run = true
slo_ms = 60.0

[service]
socket = "{folder}/s.sock"

[journal]
path = "{folder}/journal"
"""

WRONG = {
    "a controller that does not exist": ("dry_run = true", 'controller = "partion"'),
    "a parameter that it does not have": ("dry_run = true", 'controller = "partition:turn=7"'),
    "a default controller that does not exist": ("dry_run", 'default_controller = "x"\ndry_run'),
    "a policy that is not there": ("dry_run = true", 'controller = "onnx:path=/nowhere.onnx"'),
    "a controller that the node cannot do without": ("dry_run = true", 'controller = "dasec"'),
    "an unknown key": ("slo_ms", "slo_m"),
    "an unknown table": ("[service]", "[services]"),
    "a number out of its range": ("slo_ms = 60.0", "slo_ms = 0.0"),
    "a wrong type": ("slo_ms = 60.0", 'slo_ms = "60 ms"'),
    "a log that is a folder": ("{folder}/access.log", "{folder}"),
    "a column that is none": ('latency = "2"', 'latency = "x"'),
    "a pattern without the group": ('latency = "2"', 'latency = "t"\npattern = "([0-9]+)"'),
    "a relative path": ("{folder}/access.log", "access.log"),
    "a group for the socket that does not exist": (
        "[service]",
        '[service]\nsocket_group = "no-x"',
    ),
    "a group for reports that does not exist": (
        "[service]",
        '[service]\nreport_socket = "{folder}/r"\nreport_group = "no-x"',
    ),
    "records below a file": ("[service]", '[record]\ndir = "{folder}/file/r"\n[service]'),
    "a journal below a file": ("{folder}/journal", "{folder}/file/journal"),
    "groups where there are none": ("processes = {{ pids = [{pid}] }}", 'group = "web"'),
    "a user that does not exist": (
        "processes = {{ pids = [{pid2}] }}",
        "processes = {{ command = 'sort', user = 'no-x' }}",
    ),
    "an expression that is none": (
        "processes = {{ pids = [{pid2}] }}",
        "processes = {{ command = '(' }}",
    ),
    "metrics that other machines reach": ("[service]", '[service]\nmetrics = "0.0.0.0:9"'),
    "a profile and a floor": ('name = "sort"', 'name = "sort"\nprofile = "/nowhere.json"'),
    "eBPF that is not allowed": ("[node]", '[node]\npage_cache = "ebbf"'),
}
"""A change of the configuration above that makes it one that is refused."""


APPLICATION: list[int] = []
"""The process that is protected: not one that the daemon is started by, which it refuses."""


@pytest.fixture(scope="module", autouse=True)
def _application() -> Iterator[None]:
    with subprocess.Popen(["sleep", "600"]) as process:
        APPLICATION[:] = [process.pid]
        yield
        process.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "no-cgroups").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "access.log").write_text("GET / 3\n" * 100)
    return tmp_path


def write(folder: Path, text: str) -> Path:
    path = folder / "node.toml"
    path.write_text(text.format(folder=folder, pid=APPLICATION[0], pid2=2**22 - 3))
    return path


PROGRAM = (
    sys.executable,
    "-c",
    "import sys; from stallward.evaluation.cli import main; sys.exit(main())",
)


def serve(config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, "serve", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("mistake", WRONG)
def test_what_serve_refuses_doctor_refuses(
    folder: Path, mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = WRONG[mistake]
    assert PLAIN.count(old) == 1
    config = write(folder, PLAIN.replace(old, new))
    served = serve(config)
    assert served.returncode != 0, "serve refuses it"
    assert "Traceback" not in served.stderr
    assert main(["doctor", "--config", str(config)]) != 0
    assert "an application can be protected here" not in capsys.readouterr().out


def test_a_proc_that_is_not_there_is_refused_by_the_doctor(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The daemon would run without a single signal."""
    nowhere = PLAIN.replace("[node]", '[node]\nproc = "{folder}/nowhere"')
    assert main(["doctor", "--config", str(write(folder, nowhere))]) != 0
    assert "Mount it there" in capsys.readouterr().out


def test_what_is_right_both_take(folder: Path) -> None:
    config = write(folder, PLAIN)
    assert main(["doctor", "--config", str(config)]) == 0
    with subprocess.Popen(
        [*PROGRAM, "serve", "--config", str(config)], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        until_s, said = time.monotonic() + 30.0, ""
        while "the loop ticks" not in said:
            assert time.monotonic() < until_s, said
            said += process.stderr.readline()
        process.terminate()
    assert "version " in said
    assert process.returncode == 0
