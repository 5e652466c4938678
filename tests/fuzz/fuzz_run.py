"""The long run: ``python tests/fuzz/fuzz_run.py [--inputs N] [--seed N] [TARGET...]``.

Each target runs in a process of its own, so that a crash in a library is a finding too, and memory
that one leaks is freed at its end. Inputs depend on the seed, the target's name and their number
only. The input of each finding is made smaller and written below ``build/fuzz``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

from fuzz_mutations import draw, make
from fuzz_registry import targets
from fuzz_target import FindingError, Target, try_input

_OUT: Final = Path("build/fuzz")
_MAX_DATA_BYTES: Final = 3 << 30
_MAX_INPUT_S: Final = 20.0
_HANGS: Final = "takes too long"
_SHRINK_S: Final = 5.0
_MOST_KINDS: Final = 20
"""The number of different findings after which a target is stopped."""


@dataclass(slots=True)
class Outcome:
    """The counts and findings of one target."""

    target: str
    inputs: int = 0
    understood: int = 0
    seconds: float = 0.0
    slowest_ms: float = 0.0
    findings: list[str] = field(default_factory=list)


@contextmanager
def _limited() -> Iterator[Callable[[], object]]:
    """Interrupt inputs that take too long; gives a function to call before each input."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(_HANGS)

    signal.signal(signal.SIGPROF, stop)
    try:
        yield partial(signal.setitimer, signal.ITIMER_PROF, _MAX_INPUT_S)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def fuzz(target: Target, inputs: int, seed: int) -> Outcome:
    """Give a target many inputs."""
    rng = random.Random(f"{seed} {target.name}")
    outcome = Outcome(target.name)
    kinds: set[str] = set()
    began_s = time.monotonic()
    with _limited() as restart:
        for content in target.material.samples:
            try_input(target, content)
        while outcome.inputs < inputs and len(kinds) < _MOST_KINDS:
            content = make(draw(rng), target.material)
            outcome.inputs += 1
            restart()
            before_s = time.process_time()
            try:
                outcome.understood += try_input(target, content)
            except FindingError as error:
                kind = _kind(error)
                if kind not in kinds:
                    kinds.add(kind)
                    outcome.findings.append(_keep(target, content, kind, len(kinds)))
            took_ms = (time.process_time() - before_s) * 1e3
            outcome.slowest_ms = max(outcome.slowest_ms, took_ms)
    outcome.seconds = time.monotonic() - began_s
    return outcome


def _kind(error: FindingError) -> str:
    """The start of the message, without numbers and texts: the same for findings of one cause."""
    line = str(error).split("\n")[0]
    return re.sub(r"\d+", "N", re.sub(r"b?'[^']*'|b?\"[^\"]*\"", "_", line))[:70]


def _keep(target: Target, content: bytes, kind: str, number: int) -> str:
    """Make a finding's input smaller and write it to a file; returns its description."""
    content, message = shrink(target, content, kind)
    _OUT.mkdir(parents=True, exist_ok=True)
    path = _OUT / f"{re.sub(r'[^a-z0-9]+', '-', target.name)}-{number}.bin"
    path.write_bytes(content)
    return f"{message} [{path}]"


def shrink(target: Target, content: bytes, kind: str) -> tuple[bytes, str]:
    """The shortest input found with the same finding, and the finding's message."""
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    if _HANGS in kind:  # every try would take as long
        return content, kind
    signal.setitimer(signal.ITIMER_PROF, _MAX_INPUT_S, _MAX_INPUT_S)
    until_s = time.monotonic() + _SHRINK_S
    message = _says(target, content, kind) or kind
    piece = max(len(content) // 2, 1)
    while piece and time.monotonic() < until_s:
        at = 0
        while at < len(content) and time.monotonic() < until_s:
            shorter = content[:at] + content[at + piece :]
            now = _says(target, shorter, kind)
            if now is None:
                at += piece
            else:
                content, message = shorter, now
        piece //= 2
    return content, message


def _says(target: Target, content: bytes, kind: str) -> str | None:
    try:
        try_input(target, content)
    except FindingError as error:
        return str(error) if _kind(error) == kind else None
    return None


def _in_process(name: str, inputs: int, seed: int) -> Outcome:
    """Run one target in a process of its own."""
    command = [sys.executable, __file__, "--one", "--inputs", str(inputs), "--seed", str(seed)]
    done = subprocess.run([*command, name], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return Outcome(**json.loads(done.stdout.splitlines()[-1]))
    last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
    return Outcome(name, findings=[f"the process ended with {done.returncode}: {last[0]}"])


def _row(outcome: Outcome) -> str:
    share = outcome.understood / max(outcome.inputs, 1)
    return (
        f"{outcome.target:<24} {outcome.inputs:>9} {share:>10.0%} {outcome.seconds:>8.1f} "
        f"{outcome.slowest_ms:>10.0f} {len(outcome.findings):>8}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns the exit status: 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="fuzz_run.py")
    parser.add_argument("--inputs", type=int, default=100_000, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--one", action="store_true", help="run one target in this process")
    parser.add_argument("targets", nargs="*", help="default: all")
    options = parser.parse_args(arguments)
    names = options.targets or list(targets())
    if unknown := [name for name in names if name not in targets()]:
        parser.error(f"no target {unknown[0]!r}; there are {', '.join(targets())}")
    if options.one:
        warnings.simplefilter("ignore", FutureWarning)  # of patterns that a user wrote
        os.nice(19)
        resource.setrlimit(resource.RLIMIT_DATA, (_MAX_DATA_BYTES, _MAX_DATA_BYTES))
        outcome = fuzz(targets()[names[0]], options.inputs, options.seed)
        print(json.dumps(asdict(outcome)))  # noqa: T201
        return 0
    print(  # noqa: T201
        f"{'target':<24} {'inputs':>9} {'understood':>10} {'seconds':>8} {'slowest ms':>10} "
        f"{'findings':>8}"
    )
    total = 0
    with ThreadPoolExecutor(options.processes) as pool:
        for outcome in pool.map(
            lambda name: _in_process(name, options.inputs, options.seed), names
        ):
            total += len(outcome.findings)
            print(_row(outcome), flush=True)  # noqa: T201
            for finding in outcome.findings:
                print(f"  {finding}".replace("\n", "\n    "), flush=True)  # noqa: T201
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
