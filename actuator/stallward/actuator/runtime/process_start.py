"""How a process of ours is started: one module, and one value that says what it is to do.

The value is a frozen dataclass. Whoever starts the process writes it once, as JSON, into the only
argument of the command line; the process reads it back strictly, before it does anything else.
Environment variables that libraries read while they are imported are set by the starter, too, so
no module has to be imported in a special order.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from stallward.actuator.errors import OptionsError
from stallward.actuator.runtime.stderr_line import say
from stallward.agent.errors import SchemaError
from stallward.agent.schema.read import read
from stallward.agent.schema.write import to_table

SINGLE_THREADED_MATHS: Final[Mapping[str, str]] = MappingProxyType(
    {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
)
"""One thread for BLAS and ONNX Runtime, which look at these variables while they are imported."""
EXIT_OPTIONS: Final = 2
"""Exit status of a process whose options cannot be used."""
_NEXT_STEP: Final = (
    "This process is started by the commands of stallward (see `stallward --help`), of the same "
    "version."
)
_T = TypeVar("_T")


def command_line(module: str, options: object) -> list[str]:
    """The command that runs ``module`` in a process of its own.

    Args:
        module: The module's full name. Processes are recognised by it.
        options: A frozen dataclass, which :func:`read_options` gives back there.
    """
    text = json.dumps(to_table(options), allow_nan=False)
    return [sys.executable, "-m", module, text]


def read_options(kind: type[_T], arguments: Sequence[str]) -> _T:
    """The options in the arguments of a command line.

    Raises:
        OptionsError: If there is not exactly one argument, or it is no ``kind`` in JSON.
    """
    if len(arguments) != 1:
        raise OptionsError(
            f"There are {len(arguments)} arguments, not one that holds all options.",
            next_step=_NEXT_STEP,
        )
    try:
        table = json.loads(arguments[0])
    except (ValueError, RecursionError) as error:
        raise OptionsError(
            f"The argument {arguments[0]!r:.200} is not JSON: {error}.", next_step=_NEXT_STEP
        ) from error
    try:
        return read(kind, table, "options")
    except SchemaError as error:
        raise OptionsError(error.cause, next_step=_NEXT_STEP) from error


def run_process(name: str, kind: type[_T], main: Callable[[_T], int]) -> int:
    """Run a process with the options of its command line; returns its exit status.

    Args:
        name: What its messages call it.
        kind: The dataclass of its options.
        main: The process.
    """
    try:
        options = read_options(kind, sys.argv[1:])
    except OptionsError as error:
        say(str(error), name)
        return EXIT_OPTIONS
    return main(options)


def require_environment(wanted: Mapping[str, str], name: str) -> None:
    """Start this program anew, as the same process, unless it was started with ``wanted``.

    Setting the variables now would be too late for what has been imported. Descriptors that were
    handed over stay open.

    Args:
        wanted: Variables and their values.
        name: What messages call the process.
    """
    if all(os.environ.get(key) == value for key, value in wanted.items()):
        return
    command = [sys.executable, *sys.orig_argv[1:]]
    try:
        os.execve(sys.executable, command, {**os.environ, **wanted})  # noqa: S606
    except OSError as error:  # for example no memory: slower is better than not at all
        names = ", ".join(wanted)
        say(f"it runs without the environment that it needs ({names}): {error.strerror}", name)
