"""The lists of commands say what the commands say, and import none of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from stallward.actuator.cli.lazy import LazyCommand, lazy_app
from stallward.evaluation.cli.app import app

LONG = 1000
"""A length that no summary has, so that none is cut off."""


def listed(group: Any, path: str = "stallward") -> Iterator[tuple[str, LazyCommand]]:
    """The commands of a group and of those below it, by their words."""
    for name, command in group.commands.items():
        words = f"{path} {name}"
        if isinstance(command, LazyCommand):
            yield words, command
        itself = getattr(command, "itself", command)
        if hasattr(itself, "commands"):
            yield from listed(itself, words)


@pytest.mark.slow
def test_a_list_says_of_a_command_what_its_own_help_says() -> None:
    commands = dict(listed(typer.main.get_command(app)))
    assert len(commands) > 50
    wrong = {
        words: (said, says)
        for words, command in commands.items()
        if (said := command.get_short_help_str(LONG))
        != (says := command.itself.get_short_help_str(LONG))
    }
    assert wrong == {}
    unnamed = [
        words for words, command in commands.items() if words not in (command.itself.epilog or "")
    ]
    assert unnamed == [], "their examples are of other commands"


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], {"numpy", "google", "grpc", "rich", "pyarrow", "numba", "torch"}),
        (["ctl", "status", "--help"], {"numpy", "google", "grpc", "pyarrow", "numba", "torch"}),
        (["serve", "--help"], {"numpy", "google", "grpc", "pyarrow", "numba", "torch"}),
        (["trace", "--help"], {"numpy", "google", "grpc", "pyarrow", "numba", "torch"}),
    ],
)
def test_help_takes_no_time_for_what_it_does_not_show(words: list[str], heavy: set[str]) -> None:
    code = (
        "import contextlib, sys\n"
        "from stallward.evaluation.cli import main\n"
        "with contextlib.redirect_stdout(None):\n"
        f"    main({words!r})\n"
        f"print(*sorted({heavy!r} & {{name.split('.')[0] for name in sys.modules}}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_a_command_lacks_what_its_module_lacks() -> None:
    command: Any = typer.main.get_command(lazy_app("stallward.agent.absent:run", "Run it."))
    assert command.get_short_help_str() == "Run it."
    with pytest.raises(ModuleNotFoundError, match=r"stallward\.agent\.absent"):
        command.make_context("run", [])
