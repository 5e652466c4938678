"""Boots a machine with cgroup v2 and runs the tests that need it there.

``.venv/bin/python tests/vm/boot.py [--machine NAME] [PYTEST ARGUMENT...]`` (what ``make test-vm``
runs); ``-k psi`` chooses among the usual tests. There are two machines, both on this machine's own
files, which are read-only inside but for one folder:

- ``user-mode``: a User-mode Linux kernel, as fast as the processor. The default where it can be
  built.
- ``emulated``: Debian's kernel under QEMU without KVM, which needs neither root nor a compiler.

``--run COMMAND`` runs a shell command there instead, in this tree. It may write to ``$RESULTS``,
which is build/vm/results here; ``$HOME`` and ``$TMPDIR`` are on an ext4 disk that ends with it.
``--memory-mib``, ``--disk-mib`` and ``--cpus`` say how large the machine is, ``--limit-s`` after
how long it is killed.

The exit status is that of the command inside; 1 if the machine did not finish; 0, with a line that
names what is missing, where none can be booted at all. In continuous integration, which sets CI,
that is 1, and the slow machine does not stand in for the fast one.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bounded_run import end_on_sigterm, run_bounded
from machines.emulated import Emulated
from machines.kernel_source import kernel_folder
from machines.machine import Boot, Machine, SkippedError, say
from machines.user_mode import UserMode

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build" / "vm"
RESULTS: Final = BUILD / "results"
SCRIPTS: Final = Path(__file__).with_name("machines")
SWAP_MIB: Final = 512

TARGETS: Final = (
    "tests/vm/test_vm_signals.py",
    "tests/vm/test_vm_levers.py",
    "tests/vm/test_vm_limits.py",
    "tests/vm/test_vm_swap_assignment.py",
    "tests/actuator/kernel/test_cgroups.py",
    "tests/actuator/node/test_stall_watch.py",
    "tests/actuator/doctor/test_doctor.py",
    "tests/actuator/levers/test_levers_live.py",
    "tests/papers/levers/test_reader_live.py",
    "tests/actuator/journal/test_keeper.py",
    "tests/actuator/levers/cgroup/test_pod_resize_live.py",
    "tests/pods/test_daemon_pods_live.py",
    "tests/actuator/test_restorer_live.py",
    "tests/env/sandbox/test_sandbox.py",
    "tests/vm/test_vm_daemon.py",
    "tests/vm/test_vm_kill_daemons.py",
    "tests/vm/test_vm_peer_systemd_oomd.py",
    # Last, because it forbids ptrace until the next boot.
    "tests/vm/test_vm_systemd.py",
)
"""The tests that run inside unless others are named, quick ones first: those of this folder, and
live ones that hold on every kind of node. None of them imports torch."""
OPTIONS: Final = ("-raR", "--durations=10", "--timeout=1200", "-m", "vm or live")
"""Given before the arguments, so that an option among those wins."""
PLUGINS: Final = ("-p", "pytest_timeout", "-p", "pytest_rerunfailures", "-p", "no:cacheprovider")
"""Only the plugins that bound a test and repeat it: the others double the start."""
PYTEST: Final = (
    f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 exec .venv/bin/python -m pytest {shlex.join(PLUGINS)} "
    # The disk is small: what a test wrote goes with it, unless it failed.
    '-o tmp_path_retention_policy=failed --basetemp "$TMPDIR/pytest" '
    '--junitxml "$RESULTS/junit.xml"'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a machine is; the tests hold in the default one."""

    memory_mib: int = 1024
    disk_mib: int = 4096
    cpus: int = 2


def machines() -> tuple[Machine, ...]:
    """All machines, the preferred one first."""
    return (UserMode(kernel_folder()), Emulated(BUILD, ROOT))


def first_ready(candidates: Sequence[Machine]) -> Machine | None:
    """The first machine that can be booted here; says why the ones before it cannot."""
    for machine in candidates:
        try:
            description = machine.prepare()
        except SkippedError as error:
            say(f"no {machine.name} machine: {error}")
        else:
            say(f"booting {description}")
            return machine
    return None


def make_disks(folder: Path, disk_mib: int) -> tuple[Path, Path]:
    """Make fresh images of a swap disk and of an ext4 file system, as sparse files."""
    swap, disk = folder / "swap.img", folder / "disk.img"
    for path, size_mib in ((swap, SWAP_MIB), (disk, disk_mib)):
        path.unlink(missing_ok=True)
        with path.open("wb") as file:
            file.truncate(size_mib << 20)
    subprocess.run(["mkswap", "-q", swap], check=True, capture_output=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True, capture_output=True)
    return swap, disk


def verdict(results: Path, console: Path, *, ended: bool) -> int:
    """The exit status of a run: what the guest wrote, or 1 with the console's last lines."""
    status = results / "status"
    if status.exists() and status.read_text().strip().isdigit():
        return int(status.read_text())
    say("the machine did not finish" if ended else "the machine hung and was killed")
    for name, path in (("guest.log", results / "guest.log"), ("console", console)):
        text = path.read_text("utf-8", "replace") if path.exists() else ""
        for line in text.splitlines()[-25:]:
            say(f"{name}: {line}")
    return 1


def pytest_words(arguments: Sequence[str]) -> tuple[str, ...]:
    """What pytest is called with inside: the arguments, which may choose among the usual tests.

    Without a file or folder below ``tests`` among them pytest would collect every test there is.
    """
    named = any(word.startswith("tests/") for word in arguments)
    return (*OPTIONS, *arguments, *(() if named else TARGETS))


def collect(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Collect tests here, with what pytest has inside."""
    inside = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "STALLWARD_VM": "none"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS, "-q", "--collect-only", *words],
        cwd=ROOT,
        env={**os.environ, **inside, "PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def warm_up(words: Sequence[str]) -> None:
    """Write Python's byte code, because nothing can be written from inside."""
    collect(words)
    # What only the processes of a daemon import.
    command = [sys.executable, "-m", "compileall", "-q", "agent", "actuator", "models", "proto"]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=300)


def main(arguments: Sequence[str]) -> int:
    """Boot and run; returns the exit status."""
    end_on_sigterm()
    os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    known = {machine.name: machine for machine in machines()}
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--machine", choices=known)
    for name in ("memory-mib", "disk-mib", "cpus"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Size(), name.replace("-", "_")))
    parser.add_argument("--limit-s", type=float)
    parser.add_argument("--run", metavar="COMMAND")
    options, rest = parser.parse_known_args(arguments)
    candidates = tuple(known.values()) if options.machine is None else (known[options.machine],)
    in_ci = bool(os.environ.get("CI"))
    machine = first_ready(candidates[:1] if in_ci else candidates)
    if machine is None:
        say(f"{'FAILED' if in_ci else 'SKIPPED'}, nothing was tested on cgroup v2")
        return int(in_ci)
    command = options.run
    if command is None:
        words = pytest_words(rest)
        warm_up(words)
        command = f"CI={shlex.quote(os.environ.get('CI', ''))} {PYTEST} {shlex.join(words)}"
    size = Size(memory_mib=options.memory_mib, disk_mib=options.disk_mib, cpus=options.cpus)
    return run_inside(machine, command, size, options.limit_s)


def run_inside(machine: Machine, command: str, size: Size, limit_s: float | None = None) -> int:
    """Run a shell command in a machine that is ready, for as long as it or the limit allows.

    Returns:
        Its exit status, or 1 if the machine did not finish.
    """
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    for script in SCRIPTS.glob("*.sh"):
        shutil.copy(script, RESULTS)
    (RESULTS / "command").write_text(f"{command}\n")
    swap, disk = make_disks(BUILD, size.disk_mib)
    scratch = tempfile.TemporaryDirectory(dir=BUILD)  # virtme-ng leaves a file behind
    console = BUILD / "console.log"
    say(f"the kernel's messages: {console.relative_to(ROOT)}")
    boot = Boot(
        tree=ROOT,
        results=RESULTS,
        scratch=Path(scratch.name),
        swap=swap,
        disk=disk,
        memory_mib=size.memory_mib,
        cpus=size.cpus,
    )
    try:
        # Not in the tree, because a script inside mounts it again.
        os.chdir("/")
        ended = run_bounded(
            machine.command(boot),
            console=console,
            follow=RESULTS / "output.log",
            env={**os.environ, "TMPDIR": scratch.name},
            limit_s=limit_s or machine.limit_s,
        )
    finally:
        scratch.cleanup()
        swap.unlink()
        disk.unlink()
    return verdict(RESULTS, console, ended=ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
