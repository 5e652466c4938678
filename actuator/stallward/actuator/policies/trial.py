"""Tries a policy file in a process of its own, with a budget of memory and time.

What a file makes ONNX Runtime and its checks do happens here first. Whatever becomes of this
process, the loop goes on with what it had, and the store of policies has what it had.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import DaemonError
from stallward.actuator.runtime.process_start import command_line, run_process
from stallward.agent.errors import PolicyError, StallwardError

MOST_BYTES: Final = 512 << 20
"""How much memory a policy may take to load, besides that of the libraries."""
MOST_CPU_S: Final = 2.0
"""How much processor time it may take; the shipped one takes some hundredths of a second."""
LIMIT_S: Final = 15.0
"""How long the process may take in all, on a node that is short of everything."""
_REFUSED: Final = 3
_NO_RUNTIME: Final = 4
_PAGE_BYTES: Final = resource.getpagesize()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions:
    """What the process is started with."""

    path: Path
    """The policy file."""
    most_bytes: int = MOST_BYTES


def try_policy(options: TrialOptions, *, limit_s: float = LIMIT_S) -> None:
    """Load and run a policy in a process of its own.

    Raises:
        PolicyError: If it is refused.
        DaemonError: If the process did not come to an end by itself or at a bound of its own.
    """
    command = command_line("stallward.actuator.policies.trial", options)
    try:
        run = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DaemonError(
            f"Trying the policy {options.path} took more than {limit_s:g} s.",
            next_step="Look at the file, and at the disk that it is on.",
        ) from error
    except OSError as error:
        raise DaemonError(
            f"The policy {options.path} could not be tried ({error.strerror}).",
            next_step="See how many processes and how much memory the daemon may have.",
        ) from error
    said = run.stdout.decode("utf-8", "replace")
    if run.returncode == _REFUSED:
        cause, _, next_step = said.partition("\0")
        raise PolicyError(cause, next_step=next_step)
    if run.returncode == _NO_RUNTIME:
        raise DaemonError(
            f"The policy {options.path} could not be tried: ONNX Runtime is not installed.",
            next_step="Install stallward[node].",
        )
    if run.returncode == -signal.SIGKILL:  # no bound of its own does that
        raise DaemonError(
            f"The policy {options.path} could not be tried now: the process was killed, as the "
            "kernel does where memory is short.",
            next_step="Try again when more memory is free on the node.",
        )
    if run.returncode != 0:
        raise PolicyError(
            f"The policy {options.path} takes more than {options.most_bytes >> 20} MiB or "
            f"{MOST_CPU_S:g} s to load, or ends what loads it (status {run.returncode}).",
            next_step="Train a smaller network, and export it with `stallward export`.",
        )


def main(options: TrialOptions) -> int:
    """The process; returns its exit status."""
    # Here, so that the service, which starts this process, does not load them.
    from stallward.agent.controllers.onnx import OnnxController  # noqa: PLC0415
    from stallward.agent.inference import import_runtime  # noqa: PLC0415

    with contextlib.suppress(OSError):  # the loop's own score would spare it
        Path("/proc/self/oom_score_adj").write_text("500")
    try:
        import_runtime()
    except ImportError:
        return _NO_RUNTIME
    has_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE_BYTES
    most_bytes, spent_s = has_bytes + options.most_bytes, time.process_time()
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    most_s = int(spent_s + MOST_CPU_S) + 1
    # At the first of the two the kernel sends SIGXCPU, at the second SIGKILL, as for lack of memory.
    resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        OnnxController(options.path)
    except StallwardError as error:
        sys.stdout.write(f"{error.cause}\0{error.next_step}")
        sys.stdout.flush()
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(run_process("policy trial", TrialOptions, main))
