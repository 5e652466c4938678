"""The command line: ``stallward``.

Exit codes: 0 done; 1 ``ope`` refuses a candidate; 2 a mistake of the user or something this
machine lacks, one sentence with the cause and the next step on stderr; 130 interrupted, 143
terminated, both after cleaning up.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from types import FrameType

from stallward.agent.errors import StallwardError

MISTAKE = 2
INTERRUPTED = 130
TERMINATED = 143


class _Terminated(BaseException):
    """SIGTERM arrived; unwinds the stack so that everything is cleaned up."""


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated


def _say(message: str) -> None:
    sys.stderr.write(f"stallward: {' '.join(message.split())}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Without the program's name; ``None`` takes those of the process.

    Returns:
        The exit code.
    """
    from typer.exceptions import TyperException  # noqa: PLC0415 - half of the start-up time

    from stallward.evaluation.cli.app import app  # noqa: PLC0415

    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        code = app(list(sys.argv[1:] if arguments is None else arguments), standalone_mode=False)
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
    """One sentence for what the user can do something about; anything else is raised again."""
    if isinstance(error, StallwardError):
        _say(str(error))
    elif isinstance(error, ModuleNotFoundError):
        _say(_missing(error))
    elif isinstance(error, BrokenPipeError):
        # The reader of a pipe went away (`| head`): what it wanted it has.
        sys.stderr.close()
        return 0
    elif isinstance(error, OSError) and error.filename is not None:
        _say(f"{error.filename}: {error.strerror}. Check the path, free space and permissions.")
    else:
        raise error
    return MISTAKE


def _stopped(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        _say("Interrupted; nothing it started is left running or changed.")
        return INTERRUPTED
    _say("Terminated; nothing it started is left running or changed.")
    return TERMINATED


def _usage(error: Exception) -> int:
    """One sentence for a command line that does not parse."""
    message = getattr(error, "format_message", lambda: str(error))()
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", None) or "stallward"
    if context is not None and message == context.get_help():
        sys.stderr.write(f"{message}\n")  # nothing was asked for: the help is the answer
        return MISTAKE
    _say(f"{message.strip().rstrip('.')}. See `{path} --help`.")
    return MISTAKE


_EXTRAS = {
    "train": ("torch", "stable_baselines3", "gymnasium", "pyarrow", "onnx", "cmaes", "sklearn"),
    "node": ("grpc", "grpc_health", "grpc_reflection", "onnxruntime", "psutil"),
    "workloads": ("duckdb",),
}


def _missing(error: ModuleNotFoundError) -> str:
    """Which extra to install for a module that is not there.

    Raises:
        ModuleNotFoundError: ``error`` itself, if the module is none of an extra.
    """
    root = (error.name or "").partition(".")[0]
    for extra, modules in _EXTRAS.items():
        if root in modules:
            return f"{root} is not installed. Run `pip install 'stallward[{extra}]'`."
    raise error
