"""Starts a process of the daemon: it runs one module, with one value that holds its options.

The value is a frozen dataclass. The starter writes it as JSON into the only argument of the
command line, and the process reads it back strictly before it does anything else. Its interpreter
does not look for modules in the current folder, which may be anybody's. The starter also sets the
environment variables that libraries read while they are imported, so that no module has to be
imported in a special order.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
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
"""Keeps BLAS and ONNX Runtime to one thread; they read these variables while being imported."""
QUIET_GRPC: Final[Mapping[str, str]] = MappingProxyType({"GRPC_VERBOSITY": "NONE"})
"""Keeps gRPC from writing a line of its own for each handshake that fails: whoever reaches the
port could fill the journal. What it refuses by itself is no call, and nobody's to correct here."""
SAFE_IMPORTS: Final[Mapping[str, str]] = MappingProxyType({"PYTHONSAFEPATH": "1"})
"""Keeps every interpreter below a process from importing what lies in the current folder."""
EXIT_OPTIONS: Final = 2
"""The exit status of a process whose options cannot be used."""
_NEXT_STEP: Final = (
    "This process is started by the commands of stallward (see `stallward --help`), of the same "
    "version."
)
_T = TypeVar("_T")


def interpreter() -> list[str]:
    """Return the beginning of a command that runs this Python.

    With ``-m`` and ``-c`` alone, Python imports from the current folder first. A root shell may be
    in a folder of another user, who could put a module with a common name there.
    """
    return [sys.executable, "-P"]  # noqa: TID251


@contextlib.contextmanager
def safe_imports() -> Iterator[None]:
    """Start interpreters as :func:`interpreter` does, where the command is another library's.

    A process that multiprocessing starts by ``spawn`` is such a one. The environment of this
    process is changed until the block ends.
    """
    before = {name: os.environ.get(name) for name in SAFE_IMPORTS}
    os.environ.update(SAFE_IMPORTS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def command_line(module: str, options: object) -> list[str]:
    """Return the command that runs ``module`` in a process of its own.

    Args:
        module: The module's full name, by which processes are recognised.
        options: A frozen dataclass, which :func:`read_options` reads back in the process.
    """
    text = json.dumps(to_table(options), allow_nan=False)
    return [*interpreter(), "-m", module, text]


def read_options(kind: type[_T], arguments: Sequence[str]) -> _T:
    """Read the options from the arguments of a command line.

    Raises:
        OptionsError: If there is not exactly one argument, or it is not a ``kind`` in JSON.
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
    """Run a process with the options of its command line; return its exit status.

    Args:
        name: The name of the process in its messages.
        kind: The dataclass of its options.
        main: The body of the process, which returns the exit status.
    """
    try:
        options = read_options(kind, sys.argv[1:])
    except OptionsError as error:
        say(str(error), name)
        return EXIT_OPTIONS
    return main(options)


def require_environment(wanted: Mapping[str, str], name: str) -> None:
    """Execute this program again, in the same process, unless its environment has ``wanted``.

    Setting the variables now would be too late for modules that were imported already. Inherited
    descriptors stay open.

    Args:
        wanted: The variables and their values.
        name: The name of the process in messages.
    """
    if all(os.environ.get(key) == value for key, value in wanted.items()):
        return
    command = [sys.executable, *sys.orig_argv[1:]]  # noqa: TID251
    try:
        os.execve(sys.executable, command, {**os.environ, **wanted})  # noqa: S606, TID251
    except OSError as error:  # e.g. no memory: run with more threads rather than not at all
        names = ", ".join(wanted)
        say(f"it runs without the environment that it needs ({names}): {error.strerror}", name)
