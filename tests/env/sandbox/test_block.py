"""Live blocks with small programs in real groups, and their data."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import mmap
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import cast

import pytest

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.env.errors import WorkloadError
from stallward.env.sandbox.block import (
    ApplicationPrograms,
    BlockResult,
    BlockSite,
    Start,
    Workplace,
    make_workplace,
    run_block,
)
from stallward.env.sandbox.data_cache import check_needs, data_key, evict, prepare_data, run_to_end
from stallward.env.sandbox.launch import Program
from stallward.env.sandbox.sandbox import Sandbox, open_sandbox
from stallward.env.scenario.file import parse_scenario
from stallward.env.scenario.scenario import LatencyLines, Places, Scenario, expand
from stallward.env.workloads.native.build import build_native

MIB = 1024 * 1024

TOML = """
summary = "an echo server beside two hogs"
[sandbox]
limit_mib = 96
ample_mib = 512
swap_mib = 128
[protected]
ready = "{run}/s"
prepare = [["cp", "/etc/hostname", "{data}/name"]]
[protected.server]
command = ["{python}", "{data}/../server.py", "{run}/s"]
[protected.load]
command = [
  "{workloads}/load", "--socket", "{run}/s", "--request", "%K\\n", "--rate", "50",
  "--seed", "{seed}", "--out", "{run}/requests",
]
[protected.latency]
path = "{run}/requests"
start = 0
sent = 1
end = 2
ok = 3
[[background]]
name = "always"
command = [
  "{workloads}/anon", "--program", "16", "--rate", "100", "--report", "{run}/always",
]
nice = 5
units = { path = "{run}/always" }
[[background]]
name = "sometimes"
command = [
  "{workloads}/anon", "--program", "8", "--rate", "100", "--report", "{run}/sometimes",
]
phases = [{ start_s = 0.2, stop_s = 0.8 }]
repeat_s = 1
units = { path = "{run}/sometimes" }
"""

SERVER = """
import socket, sys, threading
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
def serve(c):
    while c.recv(64):
        c.sendall(b"ok" + bytes([10]))
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


def scenario_in(folder: Path, old: str = "", new: str = "") -> Scenario:
    path = folder / "small.toml"
    path.write_text(TOML.replace(old, new) if old else TOML)
    return parse_scenario(path)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    (folder / "server.py").write_text(SERVER)
    return folder


@pytest.fixture(scope="module")
def sandbox(cache: Path) -> Iterator[Sandbox]:
    with open_sandbox(
        slots=2, limit_bytes=96 * MIB, swap_bytes=128 * MIB, cache_dir=cache
    ) as made:
        yield made


def workplace_for(scenario: Scenario, cache: Path) -> Workplace:
    native = build_native(cache)
    return Workplace(data=prepare_data(scenario, cache, native), native=native, cache_dir=cache)


def leftovers(cache: Path) -> list[str]:
    mine = f"stallward-block-{os.getpid()}-*"
    return [str(path) for parent in (Path("/dev/shm"), cache) for path in parent.glob(mine)]


def test_data_is_made_once_and_again_when_its_commands_change(tmp_path: Path) -> None:
    first = scenario_in(tmp_path)
    data = prepare_data(first, tmp_path / "cache", tmp_path)
    assert (data / "name").read_text() == Path("/etc/hostname").read_text()
    (data / "kept").touch()
    assert prepare_data(first, tmp_path / "cache", tmp_path) == data
    assert (data / "kept").exists()
    other = scenario_in(tmp_path, "{data}/name", "{data}/other")
    assert data_key(other.protected.prepare) != data_key(first.protected.prepare)


def test_data_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    scenario = scenario_in(tmp_path, "/etc/hostname", "/no/such/file")
    with pytest.raises(WorkloadError, match="No such file"):
        prepare_data(scenario, tmp_path / "cache", tmp_path)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_a_missing_program_is_named() -> None:
    with pytest.raises(WorkloadError, match="no-such-program"):
        run_to_end(["no-such-program"])


def test_needs_that_are_missing_are_named_with_their_package(tmp_path: Path) -> None:
    line = 'needs = { no-such-program = "some-package", sh = "dash" }\n[sandbox]'
    with pytest.raises(WorkloadError, match=r"no-such-program.*apt-get install some-package"):
        make_workplace(scenario_in(tmp_path, "[sandbox]", line), tmp_path / "cache")
    assert not (tmp_path / "cache").exists(), "data was prepared although a program is missing"
    check_needs(scenario_in(tmp_path))


def test_needs_may_be_modules_of_python(tmp_path: Path) -> None:
    line = 'needs = { "python:json" = "json", "python:no_such_module" = "some-wheel" }\n[sandbox]'
    with pytest.raises(WorkloadError, match=r"python:no_such_module.*pip install some-wheel`\."):
        check_needs(scenario_in(tmp_path, "[sandbox]", line))


def cached_ratio(path: Path) -> float:
    """How much of a file the page cache holds, without reading it.

    A read with RWF_NOWAIT does not tell: it starts a readahead, and a fast disk is done before the
    kernel looks whether the page is there.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        pages = -(-len(view) // mmap.PAGESIZE)
        marks = (ctypes.c_ubyte * pages)()
        start = ctypes.c_char.from_buffer(view)
        failed = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(view)), marks
        )
        del start
    assert failed == 0, os.strerror(ctypes.get_errno())
    return sum(mark & 1 for mark in marks) / pages


def test_evicted_files_are_not_in_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data.bin"
    path.parent.mkdir()
    path.write_bytes(os.urandom(8 * MIB))
    os.sync()
    assert cached_ratio(path) > 0.9
    evict(tmp_path)
    assert cached_ratio(path) < 0.1


def test_placeholders_are_filled_in_and_other_braces_stay(tmp_path: Path) -> None:
    places = Places(
        data=Path("/d"),
        run=tmp_path,
        scratch=Path("/s"),
        python="py",
        workloads=Path("/w"),
        seed=7,
    )
    assert expand("{python} {data}/x {seed}1 ${HOME} {}", places) == "py /d/x 71 ${HOME} {}"


def test_if_only_answers_are_logged_the_last_ones_are_awaited(tmp_path: Path) -> None:
    log = tmp_path / "log"
    application = ApplicationPrograms(
        spec=scenario_in(tmp_path).protected,
        group=cast("Cgroup", None),
        load_group=cast("Cgroup", None),
        latency=LatencyLines(path=str(log), start="0", end="1"),
        places=cast("Places", None),
        start=cast("Start", None),
    )
    end_s = time.monotonic()
    log.write_text(f"{end_s - 2} {end_s - 1.9}\n")

    def answer_late() -> None:
        time.sleep(0.3)
        with log.open("a") as file:
            file.write(f"{end_s - 0.1} {end_s + 0.3}\n{end_s + 0.1} {end_s + 0.3}\n")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(answer_late)
        application.await_tail(end_s)
    assert 0.3 <= time.monotonic() - end_s < 3.0
    assert str(end_s + 0.1) in log.read_text()


def test_an_application_that_answered_nothing_is_no_measurement(tmp_path: Path) -> None:
    log = tmp_path / "log"
    application = ApplicationPrograms(
        spec=scenario_in(tmp_path).protected,
        group=cast("Cgroup", None),
        load_group=cast("Cgroup", None),
        latency=LatencyLines(path=str(log), start="0", end="1", ok="2"),
        places=cast("Places", None),
        start=lambda *_: cast("Program", object()),
    )
    now_s = time.monotonic()
    assert not len(application.requests(now_s).scheduled_s), "it has not run"
    log.write_text(f"{now_s - 2} {now_s} 0\n{now_s - 1} {now_s} 0\n")
    application.start_load()
    with pytest.raises(WorkloadError, match="None of 2 requests was answered"):
        application.requests(now_s)
    log.write_text(f"{now_s - 2} {now_s} 0\n{now_s - 1} {now_s} 1\n")
    assert application.requests(now_s).ok.tolist() == [False, True]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A block of 2 s after 0.5 s of burn-in, and what its daemon observed."""

    result: BlockResult
    site: BlockSite
    protected_before_load: bool
    requests_at_end: int


@pytest.fixture(scope="module")
def ran(cache: Path, sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("ran")
    scenario = scenario_in(folder)
    seen: list[tuple[BlockSite, bool]] = []
    at_end: list[int] = []

    @contextlib.contextmanager
    def daemon(site: BlockSite) -> Iterator[None]:
        seen.append((site, bool(sandbox.protected.pids() and not sandbox.load.pids())))
        yield
        at_end.append(Path(site.latency.path).read_text().count("\n"))

    result = run_block(
        sandbox,
        scenario,
        "together",
        daemon,
        workplace=workplace_for(scenario, cache),
        duration_s=2.0,
        burn_in_s=0.5,
        out_dir=folder,
        seed=3,
    )
    ((site, protected_before_load),) = seen
    return Ran(
        result=result,
        site=site,
        protected_before_load=protected_before_load,
        requests_at_end=at_end[0],
    )


@pytest.mark.live
def test_the_daemon_comes_when_the_server_runs_and_goes_after_the_load(ran: Ran) -> None:
    assert ran.protected_before_load
    assert ran.requests_at_end > 80, "50 a second for 2.5 s"
    assert ran.site.limit_bytes == ran.result.limit_bytes == 96 * MIB


@pytest.mark.live
def test_requests_of_the_burn_in_are_not_measured(ran: Ran) -> None:
    assert 60 <= len(ran.result.measured.ok) <= 150, "50 a second for 2 s"
    assert len(ran.result.requests.ok) > len(ran.result.measured.ok)
    assert ran.result.measured.ok.mean() > 0.9
    assert (ran.result.latency_ms(0.5) or 0) > 0


@pytest.mark.live
def test_work_is_measured_and_a_program_with_phases_does_less(ran: Ran) -> None:
    always, sometimes = ran.result.units_per_s(0), ran.result.units_per_s(1)
    assert always is not None
    assert sometimes is not None
    sys.stdout.write(f"{always:.1f} units a second all the time, {sometimes:.1f} with pauses\n")
    assert 0 < sometimes < always < 110, "100 a second at most, and 0.6 s of every second"


@pytest.mark.live
def test_pressure_is_measured_and_no_process_was_killed(ran: Ran) -> None:
    assert ran.result.psi_some_share is not None
    assert ran.result.oom_kills == 0


@pytest.mark.live
def test_a_block_leaves_no_process_and_no_file(ran: Ran, cache: Path, sandbox: Sandbox) -> None:
    assert ran.result.limit_bytes > 0
    assert not sandbox.zone.populated()
    assert leftovers(cache) == []


@pytest.mark.live
def test_the_condition_decides_which_programs_run(
    cache: Path, sandbox: Sandbox, tmp_path: Path
) -> None:
    scenario = scenario_in(tmp_path)
    workplace = workplace_for(scenario, cache)
    alone = run_block(
        sandbox,
        scenario,
        "alone",
        None,
        workplace=workplace,
        duration_s=0.5,
        burn_in_s=0.2,
        out_dir=tmp_path,
        seed=1,
    )
    assert alone.units_per_s(0) is None
    assert len(alone.requests.ok) > 10
    background = run_block(
        sandbox,
        scenario,
        "background",
        None,
        workplace=workplace,
        duration_s=0.5,
        burn_in_s=0.2,
        out_dir=tmp_path,
        seed=1,
    )
    assert background.latency_ms(0.5) is None
    assert background.limit_bytes == 512 * MIB
    assert (background.units_per_s(0) or 0) > 0


@pytest.mark.live
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"{data}/../server.py"', '"{data}/../none.py"', "server ended with status 2 too early"),
        ('["{python}", "{data}', '["no-such-server", "{data}', "no-such-server: not found"),
        ('"--rate", "50"', '"--rate", "0"', "load ended with status 2"),
        ('"--program", "16"', '"--program", "x"', "always ended with status 2"),
        ('path = "{run}/requests"', 'path = "{run}/elsewhere"', "No request was found"),
    ],
)
def test_a_program_that_fails_ends_the_block_with_its_error_output(
    cache: Path, sandbox: Sandbox, tmp_path: Path, old: str, new: str, message: str
) -> None:
    scenario = scenario_in(tmp_path, old, new)
    with pytest.raises(WorkloadError, match=message):
        run_block(
            sandbox,
            scenario,
            "together",
            None,
            workplace=workplace_for(scenario, cache),
            duration_s=0.8,
            burn_in_s=0.2,
            out_dir=tmp_path,
            seed=1,
        )
    assert not sandbox.zone.populated()
    assert not sandbox.load.populated()
    assert leftovers(cache) == []


def test_data_is_made_again_when_a_c_source_beside_its_module_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "stores"
    folder.mkdir()
    (folder / "build.py").touch()
    (folder / "store.c").write_text("int before;")
    found = ModuleSpec("build", None, origin=str(folder / "build.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: found)
    commands = [["{python}", "-m", "stallward.env.workloads.services.stores.build"]]
    before = data_key(commands)
    assert data_key(commands) == before
    (folder / "store.c").write_text("int after;")
    assert data_key(commands) != before


def test_machines_of_two_kinds_share_the_data_that_is_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "build.py").touch()
    found = ModuleSpec("build", None, origin=str(tmp_path / "build.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: found)
    commands = [["{python}", "-m", "stallward.env.workloads.services.stores.build"]]

    def keys() -> set[str]:
        made = set()
        for machine in ("x86_64", "aarch64"):
            monkeypatch.setattr("platform.machine", lambda name=machine: name)
            made.add(data_key(commands))
        return made

    assert len(keys()) == 1
    (tmp_path / "store.c").write_text("int it;")
    assert len(keys()) == 2
