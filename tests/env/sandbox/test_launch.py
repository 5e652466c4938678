"""Programs of a scenario are started with their niceness and in their group."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.env.sandbox.launch import is_ready, start
from stallward.env.scenario.scenario import Command, Places, expand_command

SESSION = Path("/proc/self/autogroup")
SHOW = (
    f"nice; [ ! -e {SESSION} ] || sed 's/.*nice //' {SESSION}; "
    "cat {run}/app/cgroup.procs; echo $$"
)


@pytest.mark.parametrize("nice", [0, 7])
def test_a_program_is_nice_within_its_session_and_its_session_is(
    tmp_path: Path, nice: int
) -> None:
    """Linux may share the CPU between sessions, and regard niceness only within each of them."""
    (tmp_path / "app").mkdir()
    group = Cgroup(name="app", hierarchy=Hierarchy(kind="v2", memory_root=tmp_path))
    places = Places(
        data=tmp_path, run=tmp_path, scratch=tmp_path, python=sys.executable, workloads=tmp_path,
        seed=1,
    )  # fmt: skip
    program = start("shown", Command(argv=("sh", "-c", SHOW), nice=nice), group, places)
    assert program.process.wait(timeout=20) == 0, program.log.read_text()
    *niceness, entered, itself = program.log.read_text().split()
    of_program, of_session = str(min(os.nice(0) + nice, 19)), [str(nice)] * SESSION.exists()
    assert niceness == [of_program, *of_session]
    assert entered == itself, "it enters its group before it runs"


@pytest.mark.parametrize(
    ("argv", "expanded"),
    [
        (("{python}", "-m", "a.b", "{data}/x"), ["/py", "-P", "-m", "a.b", "/d/x"]),
        (("{python}", "-c", "pass"), ["/py", "-P", "-c", "pass"]),
        (("nice", "{python}", "-m", "a.b"), ["nice", "/py", "-P", "-m", "a.b"]),
        (("{python}", "/srv/program.py", "-m"), ["/py", "/srv/program.py", "-m"]),
        (("memcached", "-m", "480"), ["memcached", "-m", "480"]),
        (("{python}",), ["/py"]),
        ((), []),
    ],
)
def test_a_module_of_a_scenario_imports_nothing_from_the_current_folder(
    argv: tuple[str, ...], expanded: list[str]
) -> None:
    """A program that a user names by its file still finds what lies beside that file."""
    places = Places(
        data=Path("/d"), run=Path("/r"), scratch=Path("/s"), python="/py", workloads=Path("/w"),
        seed=1,
    )  # fmt: skip
    assert expand_command(argv, places) == expanded


def test_a_server_is_ready_once_it_listens_at_its_socket(tmp_path: Path) -> None:
    """Between the two is a moment in which its first client would be refused."""
    path, letters, file = tmp_path / "server.sock", tmp_path / "letters.sock", tmp_path / "ready"
    with (
        socket.socket(socket.AF_UNIX) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as box,
    ):
        assert not is_ready(path)
        server.bind(str(path))
        assert not is_ready(path)
        server.listen()
        assert is_ready(path)
        box.bind(str(letters))
        assert is_ready(letters)
    assert not is_ready(path)
    assert not is_ready(file)
    file.touch()
    assert is_ready(file)
