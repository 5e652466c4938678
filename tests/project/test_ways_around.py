"""Nothing is printed, and no file is read, past the functions that say what may be.

A place that is added here needs a reason: what it prints was made printable, or whose file it is
does not matter.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = (
    "agent",
    "actuator",
    "env",
    "evaluation",
    "training",
    "models",
    "packages/lens",
    "packages/research",
    "packages/papers",
    "packages/fleet",
    "packages/kubernetes",
    "packages/benchmarks",
)

PRINTING: Final = {
    "actuator/cli/output.py": "it makes everything printable",
    "actuator/runtime/stderr_line.py": "it makes the line printable",
    "actuator/guardian/restore_command.py": "it must not import typer; printable() or an error",
    "actuator/loop/loop.py": "errors, which are printable",
    "actuator/policies/trial.py": "to the loop that started it, which makes it an error",
    "evaluation/cli/__init__.py": "it makes the message printable",
    "evaluation/remote.py": "one word for the program that started it",
    "research/sim_to_real.py": "a page of figures, for the program that writes it",
}
READING: Final = {
    "agent/believed_file.py": "it says what may be believed",
    "agent/schema": "configurations and recordings that the user names on the command line",
    "actuator/kernel": "files of the kernel, and pid files with a rule of their own",
    "actuator/sensors": "files of the kernel",
    "actuator/levers": "files of the kernel, and files of processes that are only advised on",
    "actuator/node/stall_watch.py": "files of the kernel",
    "actuator/policies/trial.py": "files of the kernel; the policy is read as a believed file",
    "actuator/guardian/loop_watch.py": "files of the kernel",
    "actuator/runtime/process_setup.py": "files of the kernel",
    "actuator/runtime/locks.py": "locks, with a rule of their own",
    "actuator/runtime/private_files.py": "it writes",
    "actuator/journal": "check_believed, on the open file",
    "actuator/ipc/shared_memory.py": "a file beside the journal, with a rule of its own",
    "actuator/policies": "the daemon's own folder, of mode 0700",
    "actuator/experiments/file.py": "the daemon's own folder, of mode 0700",
    "actuator/service/policy_servicer.py": "the daemon's own folder, of mode 0700",
    "actuator/service/socket_files.py": "folders and sockets, whose place alone is opened",
    "actuator/record/frames.py": "recordings, with a rule of their own",
    "actuator/latency": "the application's logs and sockets: figures, which are believed of nobody",
    "actuator/doctor/latency.py": "the application's logs",
    "actuator/work/read_file.py": "the background's counters, which are believed of nobody",
    "actuator/cli": "files of who runs the command, with that user's rights",
    "actuator/client": "files of who runs the command, with that user's rights",
    "kubernetes/kubelet_findings.py": "files of the kernel",
    "kubernetes/pod_file.py": "a file for tests and experiments, which names pods",
}
_READERS: Final = frozenset({"read_text", "read_bytes", "open"})


def calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield node


def prints(call: ast.Call) -> bool:
    """Whether a call writes a text to stdout or stderr."""
    called = ast.unparse(call.func)
    if called == "os.write":
        return ast.unparse(call.args[0]) in {"1", "2"}
    return called in {
        "print",
        "typer.echo",
        "typer.secho",
        "click.echo",
        "sys.stdout.write",
        "sys.stderr.write",
    }


def reads(call: ast.Call) -> bool:
    """Whether a call opens or reads a file."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id == "open"
    return isinstance(function, ast.Attribute) and function.attr in _READERS


def around(packages: tuple[str, ...], found: Callable[[ast.Call], bool]) -> set[str]:
    """The modules, by their path below the namespace, that have such a call."""
    modules = set()
    for package in packages:
        top = ROOT / package / "stallward"
        for path in top.rglob("*.py"):
            if "_pb2" not in path.name and any(map(found, calls(path))):
                modules.add(str(path.relative_to(top)))
    return modules


@pytest.mark.slow
@pytest.mark.parametrize(
    ("packages", "found", "known", "instead"),
    [
        (PACKAGES, prints, PRINTING, "cli.output, or runtime.stderr_line.say"),
        (
            ("agent", "actuator", "packages/kubernetes"),
            reads,
            READING,
            "agent.believed_file.read_believed",
        ),
    ],
)
def test_nobody_goes_around_what_says_what_may_be_printed_and_believed(
    packages: tuple[str, ...],
    found: Callable[[ast.Call], bool],
    known: dict[str, str],
    instead: str,
) -> None:
    modules = around(packages, found)
    unknown = {one for one in modules if not any(_is_in(one, place) for place in known)}
    assert not unknown, f"Use {instead}, or give the reason here."
    gone = {place for place in known if not any(_is_in(one, place) for one in modules)}
    assert not gone, "There is no such place any more."


def _is_in(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}/")
