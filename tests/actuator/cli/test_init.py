"""``stallward init``: finds real programs, and writes a configuration for them."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stallward.actuator.cli.init import _write
from stallward.actuator.config.first_config import ChosenWorkload
from stallward.actuator.config.load import load_config
from stallward.actuator.doctor.doctor import Diagnosis
from stallward.actuator.doctor.survey import Survey, Workload, survey
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.actuator.kernel.process_spec import CommandPattern
from stallward.agent.errors import UsageError
from stallward.evaluation.cli import main

MISTAKE = 2
MIB = 1 << 20
SERVICE = """
import socket, sys
held = bytearray(24 << 20)
log = open(sys.argv[1], "w")
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""
JOB = """
import sys
held = bytearray(24 << 20)
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def ungrouped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process is in no group, whatever this test runs in."""
    monkeypatch.setattr("stallward.actuator.doctor.survey._group_of", lambda *_: "")


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A service ``initservice`` and a job ``initjob``; gives the port and the log."""
    log = tmp_path / "access.log"
    lines = []
    with ExitStack() as stack:
        for name, code in (("initservice", SERVICE), ("initjob", JOB)):
            link = tmp_path / name
            link.symlink_to(Path(sys.executable).resolve())
            process = stack.enter_context(
                subprocess.Popen(
                    [str(link), "-I", "-S", "-c", code, str(log)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            lines.append(process.stdout.readline())
        yield int(lines[0]), log


def test_what_runs_is_found_with_its_memory_ports_and_logs(programs: tuple[int, Path]) -> None:
    port, log = programs
    found = survey(DEFAULT_PATHS)
    with_port = [one for one in found.workloads if port in one.ports]
    assert len(with_port) == 1
    service = with_port[0]
    assert "initservice" in service.programs
    assert log in service.logs
    assert service.memory_bytes >= 24 * MIB
    assert any("initjob" in one.programs for one in found.workloads)


@pytest.mark.usefixtures("ungrouped")
@pytest.mark.parametrize("script", [False, True])
def test_a_long_name_is_whole_and_its_pattern_finds_the_program(
    tmp_path: Path, *, script: bool
) -> None:
    name = "init-metrics-exporter"
    path = tmp_path / name
    python = Path(sys.executable).resolve()
    if script:
        path.write_text(f"#!{python} -S\n{JOB}")
        path.chmod(0o755)
    else:
        path.symlink_to(python)
    command = [str(path)] if script else [str(path), "-I", "-S", "-c", JOB]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (job,) = (one for one in survey(DEFAULT_PATHS).workloads if one.name.startswith(name[:15]))
        assert job.name == name
        line = Path(f"/proc/{process.pid}/cmdline").read_text().rstrip("\0").replace("\0", " ")
        target = ChosenWorkload(name=name, is_group=False, memory_bytes=MIB).target
        pattern = tomllib.loads(target)["processes"]["command"]
        assert CommandPattern(pattern).found_in(line)
        process.kill()


@pytest.mark.usefixtures("ungrouped")
def test_a_service_is_listed_before_larger_jobs_however_small_it_is(
    programs: tuple[int, Path],
) -> None:
    port, _ = programs
    found = survey(DEFAULT_PATHS, least_bytes=1 << 50).workloads
    assert any(port in one.ports for one in found)
    assert all(one.serves for one in found)
    listed = survey(DEFAULT_PATHS).workloads
    names = [one.programs for one in listed]
    assert names.index({"initservice"}) < names.index({"initjob"})


@pytest.mark.usefixtures("ungrouped")
def test_without_options_it_lists_and_changes_nothing(
    programs: tuple[int, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    port, _ = programs
    monkeypatch.setattr("stallward.actuator.cli.init._MOST_LISTED", 10_000)
    assert main(["init"]) == 0
    text = capsys.readouterr().out
    assert str(port) in text
    assert "stallward init --protect" in text


def test_of_many_ports_it_says_how_many_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    many = Workload(
        name="web", is_group=True, memory_bytes=24 * MIB, processes=1, ports={*range(1, 8)}
    )
    found = Survey(kind="v2", why="All are there.", workloads=(many,))
    monkeypatch.setattr("stallward.actuator.cli.init.survey", lambda _: found)
    assert main(["init"]) == 0
    assert "1, 2, 3, 4 and 3 more" in capsys.readouterr().out


def test_no_part_of_the_system_is_proposed_as_background(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("system.slice/systemd-journald.service", "init.scope", "batch.slice/job.service")
    groups = tuple(Workload(name=name, is_group=True, memory_bytes=9 * MIB) for name in names)
    found = Survey(kind="v2", why="All are there.", workloads=groups)
    monkeypatch.setattr("stallward.actuator.cli.init.survey", lambda _: found)
    assert main(["init"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in names)
    assert "--background batch.slice/job.service " in text


def test_a_name_that_a_shell_would_run_is_quoted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "x'; touch y; '"
    job = Workload(name=name, is_group=False, memory_bytes=24 * MIB, processes=1)
    found = Survey(kind="v2", why="All are there.", workloads=(job,))
    monkeypatch.setattr("stallward.actuator.cli.init.survey", lambda _: found)
    assert main(["init"]) == 0
    words = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert words[words.index("--background") + 1] == name


def test_a_name_that_several_groups_end_with_is_refused_with_their_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("a.slice/web.service", "b.slice/web.service")
    groups = tuple(Workload(name=name, is_group=True, memory_bytes=9 * MIB) for name in names)
    found = Survey(kind="v2", why="All are there.", workloads=groups)
    monkeypatch.setattr("stallward.actuator.cli.init.survey", lambda _: found)
    assert main(["init", "--protect", "web.service"]) == MISTAKE
    said = capsys.readouterr().err
    assert "'web.service' may be a.slice/web.service or b.slice/web.service." in said


@pytest.mark.usefixtures("ungrouped")
def test_it_writes_a_configuration_that_the_daemon_takes(
    programs: tuple[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port, _ = programs
    found = survey(DEFAULT_PATHS)
    (service,) = (one for one in found.workloads if port in one.ports)
    (job,) = (one for one in found.workloads if "initjob" in one.programs)
    out = tmp_path / "etc" / "stallward.toml"
    options = ["--protect", service.name, "--background", job.name, "--target-ms", "25"]
    status = main(["init", *options, "--out", str(out)])
    said = capsys.readouterr().out
    assert f"wrote {out}" in said
    assert ("next: stallward serve" in said) == (status == 0)
    config = load_config(out)
    assert config.control.slo_ms == 25
    assert main(["init", *options, "--out", str(out)]) == MISTAKE
    assert "--force" in capsys.readouterr().err


@pytest.mark.usefixtures("ungrouped")
def test_several_applications_are_written_each_with_its_target(
    programs: tuple[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port, _ = programs
    found = survey(DEFAULT_PATHS)
    (service,) = (one for one in found.workloads if port in one.ports)
    (job,) = (one for one in found.workloads if "initjob" in one.programs)
    out = tmp_path / "stallward.toml"
    options = ["--protect", service.name, "--target-ms", "25", "--background", job.name]
    others = [one.name for one in found.workloads if one.name not in {service.name, job.name}]
    assert others, "this process, at least"
    options += ["--protect", others[0], "--target-ms", "4"]
    assert main(["init", *options, "--log", "/x", "--out", str(out)]) == MISTAKE
    assert "--log is of one application" in capsys.readouterr().err
    main(["init", *options, "--out", str(out)])
    assert load_config(out).targets_ms == (25.0, 4.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--protect", "no-such-group"], "is nothing that runs here"),
        (["--protect", "initservice"], "No --background"),
        (["--protect", "initservice", "--target-ms", "1", "--target-ms", "2"], "have 2 targets"),
    ],
)
@pytest.mark.usefixtures("programs", "ungrouped")
def test_a_wrong_choice_is_refused(
    capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(["init", *options]) == MISTAKE
    assert said in capsys.readouterr().err


def test_a_configuration_is_replaced_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, link = tmp_path / "stallward.toml", tmp_path / "link.toml"
    config.write_text("# a year of tuning\n")
    config.chmod(0o640)
    link.symlink_to(config)

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UsageError, match="No space left on device"):
            _write(link, "new\n")
    assert config.read_text() == "# a year of tuning\n"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.toml", "stallward.toml"]
    _write(link, "new\n")
    assert link.is_symlink()
    assert config.read_text() == "new\n"
    assert config.stat().st_mode & 0o777 == 0o640
    _write(Path("/dev/null"), "new\n")


# ------------------------------------------------------------------ nodes of our own

TCP = "sl\n 0: 00000000:{port:04X} 00000000:0000 0A 0:0 0:0 0 0 0 {inode} 1\n"


def process(proc: Path, pid: int, name: str, line: str, *, group: str = "", mib: int = 40) -> Path:
    """A process as the kernel shows it; its folder."""
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cmdline").write_bytes(line.replace(" ", "\0").encode() + b"\0\0")
    (folder / "cgroup").write_text(f"0::/{group}\n")
    (folder / "statm").write_text(f"0 {mib * MIB // os.sysconf('SC_PAGE_SIZE')} 0 0 0 0 0\n")
    return folder


def test_a_service_in_a_container_has_the_ports_of_its_own_network(tmp_path: Path) -> None:
    for pid, port in ((100, 5432), (200, 6379)):
        folder = process(tmp_path, pid, f"db{pid}", f"/bin/db{pid}")
        for part in ("fd", "net", "ns"):
            (folder / part).mkdir()
        (folder / "fd/3").symlink_to(f"socket:[{pid}]")
        (folder / "ns/net").symlink_to(f"net:[{pid}]")
        (folder / "net/tcp").write_text(TCP.format(port=port, inode=pid))
    found = survey(Paths(proc=tmp_path, cgroup=tmp_path / "none"))
    assert {one.name: one.ports for one in found.workloads} == {"db100": {5432}, "db200": {6379}}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("php-fpm8.2", "php-fpm: pool www"),
        ("gunicorn: maste", "gunicorn: master [shop.wsgi]"),
        ("MainThread", "/usr/bin/node server.js"),
        ("batch.py", "/usr/bin/python3 -u /srv/batch.py"),
        ("redis-server", "/usr/bin/redis-server 127.0.0.1:6379"),
        ("bash", "-bash"),
    ],
)
def test_the_pattern_of_a_program_finds_it_whatever_it_calls_itself(
    tmp_path: Path, name: str, line: str
) -> None:
    process(tmp_path, 100, name, line)
    (one,) = survey(Paths(proc=tmp_path, cgroup=tmp_path / "none")).workloads
    target = ChosenWorkload(name=one.name, is_group=False, memory_bytes=MIB).target
    assert CommandPattern(tomllib.loads(target)["processes"]["command"]).found_in(line)


def test_what_else_a_pattern_finds_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cgroup")
    paths.cgroup.mkdir()
    (paths.cgroup / "cgroup.controllers").write_text("memory\n")
    process(paths.proc, 100, "serve", "/usr/bin/serve --all")
    process(paths.proc, 200, "python3", "python3 job.py")
    process(paths.proc, 300, "python3", "/usr/bin/python3 mail.py", group="mail.service", mib=1)
    process(paths.proc, 400, "tail", "tail -f /var/log/python3", mib=1)
    (paths.proc / "self").mkdir()
    (paths.proc / "self/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    found, works = survey(paths), Diagnosis(kind="v2", why="", findings=(), obstacles=())
    monkeypatch.setattr("stallward.actuator.cli.init.survey", lambda _: found)
    monkeypatch.setattr("stallward.actuator.cli.init.examine", lambda *_: works)
    names = ["--protect", "serve", "--background", "python3"]
    assert main(["init", *names, "--out", str(tmp_path / "stallward.toml")]) == 0
    said = capsys.readouterr().out
    assert "careful: the pattern of python3 also finds mail.service, tail;" in said
    assert "pattern of serve" not in said
