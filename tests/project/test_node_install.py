"""The install of a node is small, and runs the commands that the pages show.

What it lacks on purpose, a command says in one sentence with the extra to install.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from planted_modules import without_python_settings
from test_client_examples import WAIT_S, node_of
from test_deploy import DEPLOY, ROOT, copied, instructions
from test_docs import FENCE, PAGES, SHELL, unknown_words

from stallward.actuator.client import ActuatorClient
from stallward.actuator.experiments.block_tally import BlockResult
from stallward.actuator.experiments.file import save_state
from stallward.actuator.experiments.plan import Arm, Candidate, ExperimentPlan
from stallward.actuator.experiments.state import Before, ExperimentState, Progress
from stallward.evaluation.cli import INTERRUPTED, MISTAKE
from stallward.models.registry import find_policy

HEAVY = ("torch", "gymnasium", "pyarrow", "scipy", "numba", "stable_baselines3", "pandas", "onnx")
MOST_BYTES = 225_000_000
"""What the node's install may take on disk, byte code included."""

CONFIG = "node.toml"
DAEMON = """
[node]
proc = "{folder}/proc"
cgroup = "{folder}/cgroup"
[protected]
processes = {{ pids = [{one}] }}
[[background]]
name = "batch"
processes = {{ pids = [{other}] }}
[control]
dry_run = true
[service]
socket = "{folder}/s"
[journal]
path = "{folder}/journal"
[policy]
store = "{folder}/policies"
[experiments]
dir = "{folder}/experiments"
[record]
dir = "{folder}/ticks"
"""
INSTEAD = {
    "/etc/stallward/stallward.toml": CONFIG,
    "FILE": CONFIG,
    "/etc/stallward/fleet.toml": "fleet.toml",
    "/run/stallward/actuator.sock": "s",
    "/run/stallward/report.sock": "s",
    "node-7.example.org:7443": "s",
    "/var/lib/stallward/recording": "ticks",
}
"""What takes the place of a word of the pages."""

ON_THE_NODE = {
    "ab",
    "arms",
    "assess",
    "ctl",
    "describe",
    "doctor",
    "init",
    "restore",
    "serve",
    "top",
    "trace",
    "unit",
}
"""The commands of a node, whose container has the lens and the fleet, too; `record --from` and `ab plan` need Parquet, and a page says so."""
PARQUET = ("ab plan", ".parquet")
ENDLESS = re.compile(
    r"ctl rollout build/policy.onnx --nodes fleet.toml$|ctl apply|restore.* --watch"
)
"""What runs until Ctrl-C."""
ENDLESS_S = 6.0
ENDS = {
    "trace": "--seconds",
    "ctl watch": "--count",
    "ctl advice": "--last",
    "ctl shadow": "--seconds",
}
"""The option by which a command ends that else runs until Ctrl-C."""
PAIRS = 16

RUN = """
import json, os, signal, sys, time, traceback
from stallward.evaluation.cli import main
from stallward.evaluation.cli.app import app
import numpy, stallward.actuator.client
main(["--version"])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job of a shell may ignore it
for number, (words, patience_s) in enumerate(json.load(sys.stdin)):
    pid = os.fork()
    if not pid:
        for end, name in ((0, os.devnull), (1, f"{number}.out"), (2, f"{number}.err")):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), end)
        try:
            sys.argv = ["stallward", *words]
            code = main()
        except BaseException:
            code = 1
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    end_s, signals = time.monotonic() + patience_s, iter((signal.SIGINT, signal.SIGKILL))
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        time.sleep(0.02)
        if time.monotonic() > end_s:
            os.kill(pid, next(signals))
            end_s += 20.0
    with open(f"{number}.rc", "w") as file:
        file.write(str(os.waitstatus_to_exitcode(ended[1])))
"""
"""Runs commands one after the other, each in a process that has imported what they share."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The steps of the daemon's container file, in a folder that has only what it copies."""
    uv = shutil.which("uv") or str(ROOT / "build/uv/bin/uv")
    if not Path(uv).exists():
        pytest.skip("uv is not installed")
    file = DEPLOY / "daemon.Containerfile"
    folder = tmp_path_factory.mktemp("node")
    source, prefix = folder / "src", folder / "opt"
    for one in copied(file):
        there = source / one
        there.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / one).is_dir():
            shutil.copytree(ROOT / one, there, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / one, there)
    *_, run = [rest for word, rest in instructions(file) if word == "RUN"]
    # A cache of packages may be used here: what is installed is the same.
    script = run.replace("--no-cache ", "").replace("/opt/uv/bin/uv", shlex.quote(uv))
    script = script.replace("/opt/stallward", str(prefix))
    script = script.replace("python -m venv", f"{shlex.quote(sys.executable)} -m venv")
    done = subprocess.run(
        ["sh", "-euc", script],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return prefix


@pytest.mark.slow
@pytest.mark.reaches(
    "actuator", "agent", "deploy", "docs", "evaluation", "models", "packages", "proto"
)
def test_it_is_small_and_has_nothing_heavy(installed: Path) -> None:
    python = installed / "bin/python"
    code = f"import importlib.util as u; print([n for n in {HEAVY!r} if u.find_spec(n)])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    entry = (installed / "bin/stallward").read_text().partition("\n")[0]
    assert entry == f"#!{python}", "it runs in the environment that it is in"
    subprocess.run([installed / "bin/stallward", "--version"], check=True)
    files = [path for path in installed.rglob("*") if path.is_file() and not path.is_symlink()]
    size_bytes = sum(path.stat().st_size for path in files)
    assert size_bytes < MOST_BYTES, f"{size_bytes / 1e6:.0f} MB"


def shown_commands() -> list[list[str]]:
    """The commands of the pages: all in shell blocks, and those of a node in the prose."""
    found: dict[tuple[str, ...], None] = {}
    for page in PAGES:
        if page.parent.name not in ("how-to", "reference", "tutorial") and page.stem != "README":
            continue
        text = page.read_text()
        blocks = "\n".join(SHELL.findall(text)).replace("\\\n", " ")
        prose = re.findall(r"`(stallward [^`]+)`", FENCE.sub("", text).replace("\n", " "))
        for part in [*re.split(r"&&|\|\||\||&|;|\n", blocks), *prose]:
            words = shlex.split(part, comments=True)
            if "--" in words and "stallward" in words[words.index("--") :]:
                words = words[words.index("--") + 1 :]  # kubectl exec POD -- stallward
            if words[:1] != ["stallward"] or unknown_words(words[1:]):
                continue
            if part not in prose or words[1] in ON_THE_NODE:
                found[tuple(words[1:])] = None
    return [list(words) for words in found]


def for_the_test(words: list[str], pid: int) -> list[str]:
    """The same command for the daemon of the test, whatever daemon this machine has."""
    words = [INSTEAD.get(word, word) for word in words]
    words = [str(pid) if word == "4711" else word for word in words]
    if words[0] in ("assess", "restore", "unit") and "--config" not in words:
        words += ["--config", CONFIG]
    if "--" in words or "--recording" in words:
        return words
    for command, option in ENDS.items():
        if shlex.join(words).startswith(command) and option not in words:
            words += [option, "1"]
    return words


class Ran(NamedTuple):
    """A command that has ended."""

    words: list[str]
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def ran(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Ran]:
    """What is run beside a daemon of the node's install; reports of an experiment first."""
    folder = tmp_path_factory.mktemp("here")
    with serving(installed, folder) as pid:
        commands = [["ab", "report"], ["ab", "report", "--nodes", "fleet.toml"]]
        for words in shown_commands():
            if words[0] == "serve" or words[-1].startswith("--install"):
                continue  # it runs already; it changes this machine
            if words[:2] in (["ctl", "load"], ["ctl", "push"], ["ctl", "rollout"]):
                commands.append(["ab", "stop"])  # an experiment that runs refuses them
            if (safe := for_the_test(words, pid)) not in commands:
                commands.append(safe)
        subprocess.run(
            [installed / "bin/python", "-c", RUN],
            cwd=folder,
            env=without_python_settings() | {"HOME": str(folder), "STALLWARD_SOCKET": "s"},
            input=json.dumps(
                [
                    (words, ENDLESS_S if ENDLESS.match(shlex.join(words)) else WAIT_S)
                    for words in commands
                ]
            ),
            text=True,
            check=True,
        )
    return [
        Ran(words, int(code), out, err)
        for number, words in enumerate(commands)
        for code, out, err in [
            [(folder / f"{number}.{end}").read_text() for end in ("rc", "out", "err")]
        ]
    ]


@contextlib.contextmanager
def serving(installed: Path, folder: Path) -> Iterator[int]:
    """A daemon that changes nothing and has run an experiment, and a policy beside it.

    Yields:
        The process that it protects.
    """
    (folder / "cgroup").mkdir()
    (folder / "build").mkdir()
    shutil.copy(find_policy("default"), folder / "build/policy.onnx")
    save_state(folder / "experiments", experiment())
    (folder / "fleet.toml").write_text(f'[nodes]\na = "{folder}/s"\nb = "{folder}/link"\n')
    (folder / "link").symlink_to("s")
    with contextlib.ExitStack() as stack:
        pids = []
        for _ in range(2):
            idle = stack.enter_context(subprocess.Popen(["sleep", "600"], start_new_session=True))
            stack.callback(idle.kill)
            pids.append(idle.pid)
        node_of(folder / "proc", pids)
        (folder / CONFIG).write_text(DAEMON.format(folder=folder, one=pids[0], other=pids[1]))
        command = [str(installed / "bin/stallward"), "serve", "--config", CONFIG]
        daemon = stack.enter_context(subprocess.Popen(command, cwd=folder))
        stack.callback(daemon.terminate)
        with ActuatorClient(folder / "s") as client:
            client.wait_ready(WAIT_S)
        yield pids[0]


def experiment() -> ExperimentState:
    """An experiment on many nodes that is over: the treatment has half of the p95."""
    rng = np.random.default_rng(1)
    plan = ExperimentPlan(
        baseline=Candidate(),
        treatment=Candidate(policy="november", sha256="0" * 64),
        pairs=PAIRS,
        block_s=60.0,
        burn_in_s=10.0,
        seed=1,
        fleet_seed=2,
    )
    blocks = [
        BlockResult(
            pair=number // 2,
            arm=(arm := plan.arm_of(number)),
            began_s=100.0 * number,
            seconds=60,
            attainment=1.0,
            p95_ms=(20.0 if arm is Arm.TREATMENT else 40.0) * math.exp(rng.normal(0.0, 0.1)),
        )
        for number in range(plan.blocks)
    ]
    return ExperimentState(
        plan=plan,
        before=Before(),
        began_s=0.0,
        blocks=tuple(blocks),
        progress=Progress.COMPLETE,
        ended_s=100.0 * plan.blocks,
    )


@pytest.mark.slow
@pytest.mark.reaches(
    "actuator", "agent", "deploy", "docs", "evaluation", "models", "packages", "proto"
)
def test_every_shown_command_works_or_ends_in_one_sentence(ran: list[Ran]) -> None:
    assert len(ran) > 80
    for one in ran:
        assert "Traceback" not in one.err, one
        is_said = re.search(
            r"^(stallward( restore)?|Usage|make(\[\d\])?): ", one.err, re.MULTILINE
        )
        is_over = one.code == INTERRUPTED and ENDLESS.match(shlex.join(one.words))
        assert one.code == 0 or is_over or (one.code == MISTAKE and is_said), one


@pytest.mark.slow
@pytest.mark.reaches(
    "actuator", "agent", "deploy", "docs", "evaluation", "models", "packages", "proto"
)
def test_the_commands_of_a_node_need_no_extra(ran: list[Ran]) -> None:
    lacking = [" ".join(one.words) for one in ran if "stallward[" in one.err]
    assert len(lacking) > 20, "pages of training and comparing are among those that are run"
    of_the_node = [text for text in lacking if text.partition(" ")[0] in ON_THE_NODE]
    assert [text for text in of_the_node if not any(one in text for one in PARQUET)] == []


@pytest.mark.slow
@pytest.mark.reaches(
    "actuator", "agent", "deploy", "docs", "evaluation", "models", "packages", "proto"
)
def test_they_do_what_they_are_for(ran: list[Ran]) -> None:
    done = {" ".join(one.words[:2]) for one in ran if one.code == 0}
    assert {"ab start", "ab status", "ab stop", "ctl fleet", "ctl load", "ctl mode"} <= done
    assert {"arms", "ctl policies", "ctl push", "ctl status", "describe signals"} <= done
    assert {"doctor --config", "trace largest", "trace node", "trace psi"} <= done
    for report in (ran[0].out, ran[1].out):
        row = re.search(r"typical p95 of a second \(primary\) +(.*)", report)
        assert row is not None, report
        ratio, *_, p_value = row.group(1).split()
        assert float(ratio) == pytest.approx(0.5, abs=0.05)
        assert float(p_value) < 0.001
    assert "on a further node like these the ratio is" in ran[1].out
