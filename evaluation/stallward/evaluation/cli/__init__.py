"""The command line: ``stallward``.

Exit codes:

* 0: the command is done.
* 1: ``ope`` refuses a candidate, or ``bench kills`` found settings that were not restored.
* 2: the user made a mistake, or this machine lacks something. One sentence on stderr has the cause
  and the next step.
* 130 and 143: the command was interrupted or terminated, and has cleaned up.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Sequence
from importlib import metadata
from types import FrameType
from typing import Final

from typer.exceptions import TyperException

from stallward.agent.errors import StallwardError
from stallward.agent.printable import printable
from stallward.evaluation.cli import app as tree
from stallward.evaluation.cli.cluster_options import with_ray_address

MISTAKE = 2
INTERRUPTED = 130
TERMINATED = 143


class _Terminated(BaseException):
    """Raised on SIGTERM: it unwinds the stack, so that everything is cleaned up."""


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated


def _print_error(message: str) -> None:
    sys.stderr.write(f"stallward: {printable(' '.join(message.split()))}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The arguments without the program's name, by default those of the process.

    Returns:
        The exit code.
    """
    given = with_ray_address(sys.argv[1:] if arguments is None else arguments)
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        code = tree.app(given, standalone_mode=False)
    except TyperException as error:
        return _usage(error)
    except (StallwardError, ModuleNotFoundError, OSError) as error:
        return _mistake(error)
    except (KeyboardInterrupt, _Terminated) as error:
        return _stopped(error)
    except SystemExit as error:
        if error.code != TERMINATED:
            raise
        return _stopped(error)  # SIGTERM, inside a sandbox
    finally:
        signal.signal(signal.SIGTERM, previous)
    if code == INTERRUPTED:  # typer turns Ctrl-C into this code
        return _stopped(KeyboardInterrupt())
    return code if isinstance(code, int) else 0


def _mistake(error: Exception) -> int:
    """Print one sentence about an error that the user can act on; raise any other error again."""
    if isinstance(error, StallwardError):
        _print_error(" ".join([str(error), *getattr(error, "__notes__", ())]))
    elif isinstance(error, ModuleNotFoundError):
        _print_error(_missing(error))
    elif isinstance(error, BrokenPipeError):
        # The reader of a pipe has ended (`| head`) and needs no more.
        sys.stderr.close()
        return 0
    elif isinstance(error, OSError) and error.filename is not None:
        _print_error(
            f"{error.filename}: {error.strerror}. Check the path, free space and permissions."
        )
    else:
        raise error
    return MISTAKE


def _stopped(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        _print_error("Interrupted; nothing it started is left running or changed.")
        return INTERRUPTED
    _print_error("Terminated; nothing it started is left running or changed.")
    return TERMINATED


def _usage(error: Exception) -> int:
    """Print one sentence about a command line that cannot be parsed."""
    message = getattr(error, "format_message", lambda: str(error))()
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", None) or "stallward"
    if context is not None and message == context.get_help():
        sys.stderr.write(f"{message}\n")  # without a command, the help is printed
        return MISTAKE
    _print_error(f"{message.strip().rstrip('.')}. See `{path} --help`.")
    return MISTAKE


_REQUIREMENTS: Final = {
    "PIL": "pillow",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "llvmlite": "numba",
    "re2": "google-re2",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Modules whose distribution has another name than theirs."""


def extra_of(module: str) -> str | None:
    """The smallest extra that installs a module; ``None`` if no extra does."""
    wanted = _REQUIREMENTS.get(module, module.replace("_", "-"))
    extras: dict[str, list[str]] = {}
    for requirement in metadata.requires("stallward") or ():
        name = re.findall(r"^[\w.-]+", requirement)
        for extra in re.findall(r"extra == '([^']+)'", requirement):
            extras.setdefault(extra, []).extend(name)
    having = (extra for extra, names in extras.items() if wanted in names)
    return min(having, key=lambda extra: len(extras[extra]), default=None)


def _missing(error: ModuleNotFoundError) -> str:
    """A sentence that names the extra to install for a missing module.

    Raises:
        ModuleNotFoundError: ``error`` itself, if the module belongs to no extra.
    """
    root = (error.name or "").partition(".")[0]
    if (extra := extra_of(root)) is None:
        raise error
    return f"{root} is not installed. Run `pip install 'stallward[{extra}]'`."
