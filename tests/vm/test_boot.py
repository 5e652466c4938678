"""Booting the machine is bounded, leaves nothing running, and never passes by accident."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import boot
import bounded_run
import pytest
from machines import emulated, kernel_package
from machines.machine import Boot, SkippedError

# Prints, starts a child in the background and waits for ever.
HANGS = "echo booted; sleep 1000 & echo $! >{pid}; wait"


def alive(pid_file: Path) -> bool:
    stat = Path(f"/proc/{pid_file.read_text().strip()}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def run(tmp_path: Path, script: str, limit_s: float) -> bool:
    return bounded_run.run_bounded(
        ["sh", "-c", script],
        console=tmp_path / "console",
        follow=tmp_path / "followed",
        env=dict(os.environ),
        limit_s=limit_s,
    )


def test_the_output_of_a_command_is_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, f"echo console; echo tests >{tmp_path / 'followed'}", 30.0)
    assert capsys.readouterr().out == "tests\n"
    assert (tmp_path / "console").read_text().split() == ["console"]


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    assert not run(tmp_path, HANGS.format(pid=pid), 0.5)
    assert not alive(pid)
    assert "booted" in (tmp_path / "console").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_kills_all_processes(tmp_path: Path, number: signal.Signals) -> None:
    pid = tmp_path / "pid"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import bounded_run, os, pathlib\n"
        "bounded_run.end_on_sigterm()\n"
        "here = pathlib.Path(sys.argv[2])\n"
        "bounded_run.run_bounded(['sh', '-c', sys.argv[3]], console=here / 'c',\n"
        "    follow=here / 'f', env=dict(os.environ), limit_s=60)\n"
    )
    folder = str(Path(boot.__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", code, folder, str(tmp_path), HANGS.format(pid=pid)],
        stderr=subprocess.DEVNULL,
    )
    deadline_s = time.monotonic() + 20
    while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert alive(pid)
    process.send_signal(number)
    assert process.wait(20) != 0
    assert not alive(pid)


def test_an_interrupt_while_it_starts_kills_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"
    start = subprocess.Popen

    def interrupted(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        process = start(*args, **kwargs)
        while not (pid.exists() and pid.read_text().strip()):
            time.sleep(0.02)
        signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, HANGS.format(pid=pid), 20.0)
    assert not alive(pid)


@pytest.mark.parametrize(("wrote", "status"), [("0\n", 0), ("1\n", 1), ("94\n", 94)])
def test_the_exit_status_of_the_guest_is_passed_on(
    tmp_path: Path, wrote: str, status: int
) -> None:
    (tmp_path / "status").write_text(wrote)
    assert boot.verdict(tmp_path, tmp_path / "console", ended=True) == status


@pytest.mark.parametrize(("ended", "message"), [(True, "did not finish"), (False, "hung")])
def test_no_status_is_a_failure_with_the_last_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, ended: bool, message: str
) -> None:
    console = tmp_path / "console"
    console.write_text("Kernel panic\n")
    assert boot.verdict(tmp_path, console, ended=ended) == 1
    out = capsys.readouterr().out
    assert message in out
    assert "console: Kernel panic" in out


def test_missing_commands_are_named_with_their_packages(tmp_path: Path) -> None:
    with pytest.raises(SkippedError) as caught:
        emulated.check_tools(str(tmp_path), tmp_path / "vng", tmp_path)
    text = str(caught.value)
    for package in ("qemu-system-x86", "kmod", "busybox-static", "virtme-ng"):
        assert package in text


@pytest.mark.parametrize(
    ("environment", "status", "verdict"), [({}, 0, "SKIPPED"), ({"CI": "1"}, 1, "FAILED")]
)
def test_without_qemu_there_is_no_emulated_machine_and_a_line_says_so(
    environment: dict[str, str], status: int, verdict: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, boot.__file__, "--machine", "emulated"],
        env={"PATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == status
    first, last = done.stdout.splitlines()
    assert first.startswith("vm: no emulated machine: not installed: ")
    assert "package qemu-system-x86" in first
    assert last == f"vm: {verdict}, nothing was tested on cgroup v2"


def test_in_ci_no_other_machine_stands_in_for_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stubs = (Stub("fast", "no compiler"), Stub("slow"))
    monkeypatch.setattr(boot, "machines", lambda: stubs)
    monkeypatch.setattr(boot, "run_inside", lambda machine, *_: 42 if machine is stubs[1] else 0)
    monkeypatch.setattr(boot, "end_on_sigterm", lambda: None)
    monkeypatch.setenv("PATH", os.environ["PATH"])  # it is changed, and is to be put back
    monkeypatch.setenv("CI", "1")
    assert boot.main(["--run", "true"]) == 1
    out = capsys.readouterr().out
    assert out == (
        "vm: no fast machine: no compiler\nvm: FAILED, nothing was tested on cgroup v2\n"
    )
    monkeypatch.delenv("CI")
    assert boot.main(["--run", "true"]) == 42


def chosen(*arguments: str) -> list[str]:
    """The tests that pytest chooses for these arguments to boot.py."""
    done = boot.collect(boot.pytest_words(arguments))
    assert done.returncode == 0, done.stdout[-2000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_an_option_chooses_among_the_usual_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without files and a mark, pytest collected every test there is."""
    assert boot.pytest_words(["-k", "psi"])[-len(boot.TARGETS) :] == boot.TARGETS
    signals = "tests/vm/test_vm_signals.py"
    monkeypatch.setattr(boot, "TARGETS", (signals, "tests/vm/test_boot.py"))
    tests = chosen("-k", "psi or files")  # the second word is in the name of a test without mark
    assert tests
    assert all(test.startswith(signals) for test in tests)


def test_arguments_may_name_files_and_another_mark() -> None:
    tests = chosen("tests/vm/test_boot.py", "-m", "not vm", "-k", "guest")
    assert tests
    assert all(test.startswith("tests/vm/test_boot.py") for test in tests)


class Stub:
    """A machine that can be booted, or cannot for a reason. Its kernel is this one."""

    limit_s = 60.0

    def __init__(self, name: str, lacking: str = "") -> None:
        self.name = name
        self._lacking = lacking

    def prepare(self) -> str:
        if self._lacking:
            raise SkippedError(self._lacking)
        return self.name

    def command(self, files: Boot) -> list[str]:
        script = str(files.results / "run.sh")
        disk = str(files.scratch / "disk")
        return ["sh", script, str(files.results), str(files.tree), str(files.swap), disk]


def test_the_first_machine_that_can_be_booted_is_taken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fast, slow = Stub("fast"), Stub("slow")
    assert boot.first_ready((fast, slow)) is fast
    assert boot.first_ready((Stub("fast", "no compiler"), slow)) is slow
    assert "vm: no fast machine: no compiler\nvm: booting slow\n" in capsys.readouterr().out
    assert boot.first_ready((Stub("fast", "a"), Stub("slow", "b"))) is None


def test_a_command_has_a_place_for_results_and_gives_back_output_and_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(boot, "ROOT", tmp_path)
    monkeypatch.setattr(boot, "BUILD", tmp_path / "vm")
    monkeypatch.setattr(boot, "RESULTS", tmp_path / "vm" / "results")
    monkeypatch.chdir(tmp_path)
    command = "echo written >$RESULTS/made; echo printed; test -d $TMPDIR && exit 7"
    assert boot.run_inside(Stub("here"), command, boot.Size(disk_mib=16)) == 7
    assert "printed" in capsys.readouterr().out
    assert (tmp_path / "vm" / "results" / "made").read_text() == "written\n"
    assert {path.name for path in (tmp_path / "vm").iterdir()} == {"results", "console.log"}


def test_only_the_files_that_a_boot_needs_are_unpacked() -> None:
    modules = "./lib/modules/6.1.0/kernel"
    assert kernel_package.is_unpacked("./boot/vmlinuz-6.1.0")
    assert kernel_package.is_unpacked(f"{modules}/fs/9p/9p.ko")
    assert kernel_package.is_unpacked("./usr/lib/modules/6.1.0/modules.builtin")
    assert not kernel_package.is_unpacked("./boot/System.map-6.1.0")
    assert not kernel_package.is_unpacked(f"{modules}/drivers/gpu/drm/amd/amdgpu/amdgpu.ko")
