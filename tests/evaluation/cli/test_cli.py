"""Every mistake on the command line gives one sentence and exit code 2, never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from stallward.evaluation.cli import main

PAGES = Path(__file__).parents[3] / "docs/reference"

COMMANDS = (
    "ab",
    "assess",
    "catalogue",
    "demo",
    "record",
    "fit",
    "train",
    "tune",
    "export",
    "init",
    "serve",
    "ctl",
    "compare",
    "oracle",
    "ope",
    "explain",
    "minari",
    "border",
    "capacity",
    "fidelity",
    "verdict",
    "bench",
    "arms",
    "scenarios",
    "workingset",
)
CTL = (
    "status",
    "watch",
    "apply",
    "release",
    "push",
    "policies",
    "roll-back",
    "fleet",
    "rollout",
    "recall",
    "load",
    "mode",
    "advice",
    "shadow",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Usage:" in text
    assert "stallward" in text.partition("Example")[2], "no example to copy"


@pytest.mark.parametrize("command", [[], ["ctl"]], ids=["stallward", "stallward ctl"])
def test_without_a_command_the_commands_are_listed(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    text = capsys.readouterr().err
    assert text.startswith("Usage:")
    listed = text.partition("Commands:")[2]
    assert len(listed.splitlines()) > 6, "one command a line"
    assert "..." not in listed, "a summary is truncated"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("stallward ctl ad", ["advice"]),
        ("stallward ctl apply --cpu-", ["--cpu-weight", "--cpu-max"]),
        ("stallward ser", ["serve"]),
    ],
)
def test_the_shell_completes_commands_and_options(typed: str, expected: list[str]) -> None:
    words = typed.split()
    asked = {
        "_STALLWARD_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [str(Path(sys.executable).with_name("stallward"))],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == expected, done.stderr


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == version("stallward")


@pytest.mark.parametrize("command", CTL)
def test_every_ctl_command_has_help_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ctl", command, "--help"]) == 0
    assert "Example: stallward ctl" in capsys.readouterr().out


SHIPPED = str(Path(__file__).parents[3] / "recordings" / "detector-anon-none-s1")
NEEDS_TORCH = pytest.mark.skipif(not find_spec("torch"), reason="could not import 'torch'")
MISTAKES = [
    (["nonsense"], "No such command"),
    (["compare"], "Missing argument"),
    (["compare", "detector-anom"], "Did you mean detector-anon"),
    (["oracle", "nowhere"], "no fitted twin 'nowhere'"),
    (
        ["oracle", "memcached-gcc", "--look-ahead", "--vary", "limits"],
        "'limits' is no part of the set-points",
    ),
    (["oracle", "detector-anon", "--result", "missing.json"], "missing.json"),
    (["ope", SHIPPED], "has propensities"),
    (["ope", "--arms", "latd", "--scenario", "detector-anon"], "looks at processes"),
    (["tune", "latd"], "no rule that can be tuned"),
    (["tune", "--out", SHIPPED], "not a file of thresholds"),
    (["compare", "detector-anon", "--arms", "nome"], "no controller 'nome'"),
    (["compare", "detector-anon", "--arms", ""], "No arm"),
    (["compare", "detector-anon", "--arms", "none,none"], "named twice"),
    (["compare", "detector-anon", "--arms", "onnx:path=missing.onnx"], "missing.onnx"),
    (["compare", "detector-anon", "--arms", "none", "--blocks", "0"], "--blocks 3"),
    (["compare", "detector-anon", "--arms", "none", "--block-seconds", "0"], "--block-seconds"),
    (["compare", "detector-anon", "--blocks", "many"], "--blocks"),
    (["compare", "detector-anon", "--seed", "-1"], "--seed"),
    (["compare", "detector-anon", "--twin", "--block-seconds", "inf"], "--block-seconds"),
    (["compare", "detector-anon", "--twin", "--twin-file", "typo.toml"], "typo.toml"),
    (["compare", "missing.toml", "--arms", "none"], "missing.toml"),
    (["compare", "detector-anon", "--arms", "none", "--out", "file"], "file is a file"),
    (["compare", "detector-anon", "--arms", "none", "--out", "full"], "holds no comparison"),
    (["compare", "--frobnicate"], "--frobnicate"),
    (["record"], "No scenario"),
    (["record", "detector-anon", "--all"], "--all"),
    (["record", "detector-anon", "--condition", "lonely"], "no condition 'lonely'"),
    (["record", "detector-anon", "--arm", "none,latd"], "several arms"),
    (["record", "detector-anon", "--out", "full"], "exists already"),
    (["record", "--all", "--plan", "missing.toml"], "missing.toml"),
    (["record", "x", "--from", "full"], "--out"),
    (["record", "x", "--from", "full", "--out", "new", "--config", "no.toml"], "no.toml"),
    (["record", "--from", "full", "--all"], "--from"),
    (["record", "--all", "--plan", "typo.toml"], "unknown key 'scenarios'"),
    (["fit", "missing"], "no directory missing"),
    (["fit", "full"], "no recording"),
    (["train", "--twin", "missing.json"], "missing.json"),
    (["fit", SHIPPED, "--out", "typo.json"], "not a fitted twin"),
    (["fit", SHIPPED, "--out", "file/twins"], "file is a file"),
    (["fit", SHIPPED, "--seconds", "nan"], "--seconds"),
    (["train", "--out", "full"], "exists already"),
    (["train", "--twin", "detector-anon", "--thresholds", "mine.toml"], "name of no rule"),
    (["train", "--twin", "detector-anon", "--thresholds", "nowhere/pi.toml"], "nowhere/pi.toml"),
    (["train", "--out", "file/run"], "file is a file"),
    (["export", "full", "--out", "other.onnx"], "not a policy"),
    (["export", "full", "--out", "card.onnx"], "card.md exists"),
    (["export", "full", "--out", "file"], "does not end in .onnx"),
    pytest.param(["export", "full"], "full", marks=NEEDS_TORCH, id="export full"),
    (["serve", "--config", "missing.toml"], "no configuration"),
    (["serve", "--config", "typo.toml"], "typo.toml"),
    (["ctl", "status", "--socket", "missing.sock"], "No daemon listens"),
    (["ctl", "mode", "loud", "--socket", "missing.sock"], "'loud' is not a mode"),
    (["ctl", "sing"], "No such command"),
    (["fidelity", "full"], "no recording"),
    (["fidelity", "foreign"], "foreign"),
    (["bench", "node"], "No such command"),
    (["arms", "--jsno"], "--jsno"),
    (["scenarios", "extra"], "unexpected extra argument"),
    (["demo", "--out", "file"], "file is a file"),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a file, a full directory, a foreign recording and a typo."""
    (tmp_path / "file").write_text("precious")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious.txt").write_text("precious")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "run.json").write_text('{"somebody": "else"}')
    (tmp_path / "typo.toml").write_text('scenarios = "detector-anon"\n')
    for name in ("typo.json", "other.onnx", "card.md"):
        (tmp_path / name).write_text("precious")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _tree(place: Path) -> dict[str, str]:
    return {
        str(p.relative_to(place)): p.read_text() if p.is_file() else "" for p in place.rglob("*")
    }


def _id(value: list[str] | str) -> str:
    return (value if isinstance(value, str) else " ".join(value))[:60]


def _assert_one_sentence(errors: str, message: str) -> None:
    assert "Traceback" not in errors
    last = errors.strip().splitlines()[-1]
    assert message in last, errors
    assert last.rstrip().endswith((".", "`", "?")), last


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=_id)
def test_mistakes_are_one_sentence_and_leave_nothing(
    place: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    before = _tree(place)
    assert main(arguments) == 2
    _assert_one_sentence(capfd.readouterr().err, message)
    assert _tree(place) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "detector-anom"], "Did you mean detector-anon"),
        (["fit", "full"], "no recording"),
        (["export", "full", "--out", "other.onnx"], "not a policy"),
    ],
    ids=_id,
)
@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_mistake_is_the_last_output_of_a_process(
    place: Path, arguments: list[str], message: str
) -> None:
    """The interpreter and libraries write nothing after it when they end."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from stallward.evaluation.cli import main; sys.exit(main(sys.argv[1:]))",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    _assert_one_sentence(done.stderr, message)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from stallward.evaluation.cli import main; main(['--help']); "
        "heavy = {'torch', 'pyarrow', 'grpc', 'onnxruntime', 'gymnasium', 'scipy', 'numpy'}; "
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_arms_and_scenarios_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["arms", "--json"]) == 0
    arms = {entry["name"] for entry in json.loads(capsys.readouterr().out)}
    assert {
        "none",
        "static",
        "excite",
        "latd",
        "latd-cgroup",
        "latd-grow",
        "onnx",
        "remote",
        "peer:earlyoom",
    } <= arms
    assert main(["scenarios", "--json"]) == 0
    scenarios = json.loads(capsys.readouterr().out)
    assert "detector-anon" in {entry["name"] for entry in scenarios}
    assert main(["arms"]) == 0
    assert "latd" in capsys.readouterr().out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_commands_say_so_and_exit_with_their_code(
    number: signal.Signals, code: int
) -> None:
    program = (
        "import sys, time\n"
        "from stallward.evaluation.cli import main\n"
        "from stallward.evaluation.cli.app import app\n"
        "def wait() -> None:\n"
        "    print('up', flush=True)\n"
        "    time.sleep(30)\n"
        "app.command('wait')(wait)\n"
        "sys.exit(main(['wait']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert "nothing it started is left" in errors


def test_sigterm_inside_a_sandbox_is_reported_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def leave(*_: object, **__: object) -> None:
        raise SystemExit(143)

    monkeypatch.setattr("stallward.evaluation.cli.record.record_one", leave)
    assert main(["record", "detector-anon"]) == 143
    assert "Terminated; nothing it started is left" in capsys.readouterr().err


def test_a_closed_pipe_is_not_an_error() -> None:
    code = "import sys; from stallward.evaluation.cli import main; sys.exit(main(['arms']))"
    done = subprocess.run(
        ["bash", "-c", f'{sys.executable} -c "{code}" | true; exit ${{PIPESTATUS[0]}}'],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr


def test_describe_prints_the_reference_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "signals"]) == 0
    assert capsys.readouterr().out == (PAGES / "signals.md").read_text()
    assert main(["describe", "observation"]) == 0
    assert capsys.readouterr().out == (PAGES / "observation.md").read_text()
