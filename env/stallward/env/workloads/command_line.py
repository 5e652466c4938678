"""The command lines of the programs: each follows from the signatures of functions."""

from __future__ import annotations

import argparse
import inspect
import os
from collections.abc import Callable
from typing import Any, NoReturn, get_args, get_type_hints


def run_program(
    description: str | None,
    function: Callable[..., object] | None = None,
    /,
    **actions: Callable[..., object],
) -> None:
    """Call a function with the arguments of this process.

    Its positional-only parameters are arguments in their places. All others are options, which are
    needed if they have no default; ``Annotated[int, "of each"]`` explains one. A list that the
    function returns is the command line of a program, which this process becomes.

    Args:
        description: The docstring of the program's module.
        function: The function.
        actions: Several in its place, one of which the first argument names. They share one
            command line, and each takes its part of it.
    """
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    if function is None:
        parser.add_argument("action", choices=tuple(actions))
    else:
        actions = {"": function}
    parameters = {name: _parameters(action) for name, action in actions.items()}
    shared: dict[str, inspect.Parameter] = {}
    for name in sorted(parameters, key="serve".__eq__):  # first what makes the data
        shared = {**shared, **{k: v for k, v in parameters[name].items() if k not in shared}}
    if function is None and "seed" in shared:
        shared["seed"] = shared.pop("seed")
    for one in sorted(shared.values(), key=lambda one: (not _in_place(one), not _needed(one))):
        kind, *told = get_args(one.annotation) or (one.annotation,)
        details: dict[str, Any] = {"type": kind, "help": told[0] if told else None}
        if not _in_place(one):
            details["required"] = _needed(one) and all(one.name in p for p in parameters.values())
            details["default"] = None if _needed(one) else one.default
        name = one.name if _in_place(one) else f"--{one.name.replace('_', '-')}"
        parser.add_argument(name, **details)
    given = vars(parser.parse_args())
    action = given.pop("action", "")
    taken = {name: given[name] for name in parameters[action]}
    if None in taken.values():
        parser.error(f"{action} needs --{next(k for k, v in taken.items() if v is None)}")
    places = [taken.pop(one.name) for one in parameters[action].values() if _in_place(one)]
    command = actions[action](*places, **taken)
    if isinstance(command, list):
        become(command)


def become(command: list[str]) -> NoReturn:
    """Replace this process by a program, without a shell."""
    os.execv(command[0], command)  # noqa: S606


def _parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """The parameters of a function with their types."""
    hints = get_type_hints(function, include_extras=True)
    return {
        name: one.replace(annotation=hints[name])
        for name, one in inspect.signature(function).parameters.items()
    }


def _in_place(one: inspect.Parameter) -> bool:
    return one.kind is one.POSITIONAL_ONLY


def _needed(one: inspect.Parameter) -> bool:
    return one.default is one.empty
