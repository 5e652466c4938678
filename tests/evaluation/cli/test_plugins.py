"""Packages add commands by entry points; a broken one is said, and stops no other command."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path
from typing import NamedTuple

import pytest

import stallward.evaluation.cli.app  # noqa: F401 - no test is to take the time of this import
from stallward.evaluation.cli import main, plugins

PLUGIN = """
import typer
from stallward.evaluation.cli.plugins import PluggedGroup

wave = typer.Typer(add_completion=False, rich_markup_mode=None)

@wave.command()
def any_name(times: int = 1) -> None:
    '''Wave at the node.'''
    print("waves", times)

many = typer.Typer(
    name="waves", cls=PluggedGroup, add_completion=False, rich_markup_mode=None, help="Wave in ways."
)

@many.command()
def slowly() -> None:
    print("waves slowly")

@many.command()
def fast() -> None:
    print("waves fast")

PLAIN = 1
"""


class Done(NamedTuple):
    """What a command has come to."""

    code: int
    out: str
    err: str


class Shell:
    """Runs commands in this process.

    Args:
        captured: What they print.
    """

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured

    def __call__(self, *words: str) -> Done:
        code = main(words)
        return Done(code, *self._captured.readouterr())


@pytest.fixture
def reads() -> list[str]:
    """The groups of entry points that were read."""
    return []


@pytest.fixture
def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reads: list[str],
) -> Iterator[Shell]:
    """Runs commands where one package is installed, with good and bad entry points."""
    info = tmp_path / "waving-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: waving\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[stallward.commands]\n"
        "wave = waving:wave\n"
        "waves = waving:many\n"
        "waves.calmly = waving:wave\n"
        "describe.wave = waving:wave\n"
        "arms = waving:wave\n"
        "lost = no_such_module:wave\n"
        "failing = failing:wave\n"
        "odd = waving:PLAIN\n"
    )
    (tmp_path / "waving.py").write_text(PLUGIN)
    (tmp_path / "failing.py").write_text("raise RuntimeError('It breaks at import.')\n")

    def installed(group: str) -> list[EntryPoint]:
        reads.append(group)
        found = Distribution.discover(path=[str(tmp_path)])
        return [point for one in found for point in one.entry_points.select(group=group)]

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "entry_points", installed)
    plugins.all_points.cache_clear()
    yield Shell(capsys)
    plugins.all_points.cache_clear()
    sys.modules.pop("waving", None)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    """Runs commands where the core alone is installed."""
    monkeypatch.setattr(plugins, "entry_points", lambda group: ())
    plugins.all_points.cache_clear()
    yield Shell(capsys)
    plugins.all_points.cache_clear()


def test_a_command_of_another_package_is_called_and_listed(run: Shell) -> None:
    assert run("wave", "--times", "3").out == "waves 3\n"
    assert run("waves", "fast").out == "waves fast\n"
    assert run("describe", "wave").out == "waves 1\n"
    listed = run("--help").out
    assert re.search(r"^  wave +Wave at the node\.$", listed, re.MULTILINE)
    assert re.search(r"^  waves +Wave in ways\.$", listed, re.MULTILINE)
    assert "Wave at the node." in run("describe", "--help").out
    assert "wave [OPTIONS]" in run("wave", "--help").out


def test_a_package_adds_a_command_to_the_group_of_another(run: Shell) -> None:
    assert run("waves", "calmly", "--times", "2").out == "waves 2\n"
    listed = re.findall(r"^  (\w+)", run("waves", "--help").out, re.MULTILINE)
    assert listed[-3:] == ["slowly", "fast", "calmly"]


def test_a_package_cannot_replace_a_command_of_the_core(run: Shell) -> None:
    assert "latd" in run("arms").out


def test_a_command_of_the_core_reads_no_entry_points(run: Shell, reads: list[str]) -> None:
    assert run("--version").code == run("arms").code == run("describe", "observation").code == 0
    assert reads == []
    assert run("wave").code == 0
    assert reads == ["stallward.commands"]
    assert "failing" not in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "lost",
            "`stallward lost` (no_such_module:wave) cannot be loaded: No module named "
            "'no_such_module'. Install another version of waving, or remove it.",
        ),
        ("failing", "`stallward failing` (failing:wave) cannot be loaded: It breaks at import. "),
        ("odd", "`stallward odd` (waving:PLAIN) is no typer.Typer. "),
    ],
)
def test_a_broken_package_is_one_sentence_and_stops_no_other_command(
    run: Shell, name: str, message: str
) -> None:
    for words in ([name], [name, "--help"], [name, "--x", "y", "--", "z"]):
        done = run(*words)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"stallward: {message}")
        assert done.err.count("\n") == 1
    listed = run("--help")
    assert listed.code == 0
    assert re.search(rf"^  {name} +It cannot be loaded\.$", listed.out, re.MULTILINE)


def test_the_core_alone_has_all_its_commands_and_lists_no_others(bare: Shell) -> None:
    listed = bare("--help").out
    names = "compare|arms|scenarios|describe"
    assert re.findall(rf"^  ({names}) ", listed, re.MULTILINE) == names.split("|")
    assert not re.search(
        r"^  (workingset|trace|plot|resident|profile|experiment|bench)\b", listed, re.MULTILINE
    )
    research = "search|oracle|border|capacity|fidelity|verdict|ope|explain|minari"
    assert not re.search(rf"^  ({research})\b", listed, re.MULTILINE)
    assert "observation" in (listed := bare("describe", "--help").out)
    assert not re.search(r"^  trace\b", listed, re.MULTILINE)
    assert bare("describe", "observation").code == 0


@pytest.mark.parametrize("path", plugins.EXTRA_OF)
def test_a_command_that_is_not_installed_says_what_to_install(bare: Shell, path: str) -> None:
    words = path.split(".")
    for rest in ([], ["--help"], ["node", "--hz", "2", "--", "true"]):
        assert bare(*words, *rest) == (
            2,
            "",
            f"stallward: `stallward {' '.join(words)}` is not installed. "
            f"Run `pip install 'stallward[{plugins.EXTRA_OF[path]}]'`.\n",
        )


@pytest.mark.parametrize("words", ["ctl watch", "ab start", "ab status", "ab stop", "ab report"])
def test_many_nodes_need_an_extra_of_their_own(
    bare: Shell, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr("stallward.actuator.cli.connect.entry_points", lambda **_: ())
    assert bare(*words.split(), "--nodes", "fleet.toml") == (
        2,
        "",
        f"stallward: `stallward {words} --nodes` is not installed. "
        "Run `pip install 'stallward[fleet]'`.\n",
    )


def test_installed_commands_stand_in_their_places(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed = Shell(capsys)("--help").out
    names = (
        "train|search|tune|oracle|border|capacity|fidelity|verdict|ope|explain|minari|workingset"
        "|trace|plot|resident|profile|bench|arms"
    )
    assert re.findall(rf"^  ({names}) ", listed, re.MULTILINE) == names.split("|")


def test_a_misspelt_command_is_suggested(run: Shell) -> None:
    assert "Did you mean 'waves', 'wave'" in run("wavess").err
    assert "Did you mean 'serve'" in run("serv").err
