"""Commands that are listed without their modules, which are imported when a command is chosen.

So the module of a command imports at its top whatever the command needs, and neither
``stallward --help`` nor another command takes the time of it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import typer
from typer.core import TyperCommand

from stallward.agent.by_name import load_named


class LazyCommand(TyperCommand):
    """The place of a command in a list; its callback finds the command itself."""

    @cached_property
    def itself(self) -> Any:
        """The command, with its options; a group, where there are several.

        Raises:
            ModuleNotFoundError: If this install lacks what the command needs.
        """
        assert self.callback is not None
        found = self.callback()
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(add_completion=False, rich_markup_mode=None)
            found.command(self.name, epilog=self.epilog)(function)
        return typer.main.get_command(found)

    def make_context(self, *words: Any, **settings: Any) -> Any:
        """Parse the words after the command's name, as the command itself does."""
        return self.itself.make_context(*words, **settings)


def add_command(
    group: typer.Typer, target: str, summary: str, example: str = "", *, name: str = ""
) -> None:
    """Add a command to a group.

    Args:
        group: The group that lists it.
        target: Where it is, as ``package.module:function``; or as ``package.module:app``, where
            ``app`` is a ``typer.Typer``, which then has its own example.
        summary: What the list says: the first sentence of the function's docstring.
        example: A line for a shell.
        name: The command's name, by default that of the function.
    """

    def find() -> Any:
        return load_named(target)

    group.command(
        name or target.partition(":")[2].replace("_", "-"),
        cls=LazyCommand,
        help=summary,
        epilog=f"Example: {example}" if example else None,
    )(find)


def lazy_app(target: str, summary: str, example: str = "", *, name: str = "") -> typer.Typer:
    """One command on its own, for the entry points of a package; see :func:`add_command`."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    add_command(app, target, summary, example, name=name)
    return app
