"""A block of a scenario that protects several applications."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import ControlConfig
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.latency.config import LinesLatency
from stallward.env.sandbox.block import (
    BlockResult,
    BlockSite,
    make_workplace,
    run_block,
    site_config,
)
from stallward.env.sandbox.sandbox import open_sandbox
from stallward.env.scenario.file import parse_scenario

MIB = 1024 * 1024
APPLICATION = """
[[protected]]
name = "NAME"
ready = "{run}/s"
prepare = [["touch", "{data}/NAME"]]
warm = [["touch", "{run}/warm"]]
[protected.server]
command = ["{python}", "{data}/../server.py", "{run}/s", "{data}/NAME", "{scratch}/held", "MIB"]
[protected.load]
command = [
  "{workloads}/load", "--socket", "{run}/s", "--request", "%K\\n", "--rate", "RATE",
  "--seed", "{seed}", "--out", "{run}/requests.lines",
]
[protected.latency]
path = "{run}/requests.lines"
start = 0
sent = 1
end = 2
ok = 3
[protected.slo]
latency_ms = TARGET
"""
SCENARIO = """
summary = "two echo servers"
[sandbox]
limit_mib = 96
ample_mib = 512
swap_mib = 128
"""
SERVER = """
import pathlib, socket, sys, threading
path, data, held, mib = sys.argv[1:]
assert pathlib.Path(data).exists()
pathlib.Path(held).write_text("mine")
memory = bytearray(int(mib) << 20)
s = socket.socket(socket.AF_UNIX)
s.bind(path)
s.listen()
def serve(c):
    while c.recv(64):
        c.sendall(b"ok" + bytes([10]))
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


def application(name: str, *, rate: int, target_ms: int, mib: int) -> str:
    text = APPLICATION.replace("NAME", name).replace("RATE", str(rate))
    return text.replace("TARGET", str(target_ms)).replace("MIB", str(mib))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[BlockResult, dict[str, object]]:
    """A block of 2 s of two servers without background, and what its daemon saw."""
    folder, cache = tmp_path_factory.mktemp("ran"), tmp_path_factory.mktemp("cache")
    (cache / "server.py").write_text(SERVER)
    path = folder / "two.toml"
    path.write_text(
        SCENARIO
        + application("cache", rate=50, target_ms=2, mib=0)
        + application("web", rate=100, target_ms=5, mib=40)
    )
    scenario = parse_scenario(path)
    workplace = make_workplace(scenario, cache)
    seen: dict[str, object] = {}

    @contextlib.contextmanager
    def daemon(site: BlockSite) -> Iterator[None]:
        seen["config"] = site_config(
            site, folder, control=ControlConfig(slo_ms=2), guard=Budgets()
        )
        seen["servers"] = [len(group.pids()) for group in site.sandbox.applications]
        seen["warm"] = [Path(one.path).with_name("warm").exists() for one in site.latencies]
        seen["usage"] = [_usage_bytes(group) for group in site.sandbox.applications]
        yield
        seen["load"] = len(site.sandbox.load.pids())

    with open_sandbox(
        slots=0, others=("web",), limit_bytes=96 * MIB, swap_bytes=128 * MIB, cache_dir=cache
    ) as sandbox:
        result = run_block(
            sandbox,
            scenario,
            "together",
            daemon,
            workplace=workplace,
            duration_s=2.0,
            burn_in_s=0.5,
            out_dir=folder,
            seed=3,
        )
        seen["populated"] = sandbox.zone.populated()
    seen["left"] = [
        str(one)
        for parent in (Path("/dev/shm"), cache)
        for one in parent.glob(f"stallward-block-{os.getpid()}-*")
    ]
    return result, seen


def _usage_bytes(group: Cgroup) -> int:
    """The memory of a group; only a hierarchy of version 1 has the second file."""
    assert group.memory_dir is not None
    for name in ("memory.current", "memory.usage_in_bytes"):
        if (group.memory_dir / name).exists():
            return int((group.memory_dir / name).read_text())
    raise AssertionError(group.memory_dir)


@pytest.mark.live
def test_each_application_has_its_own_requests(
    ran: tuple[BlockResult, dict[str, object]],
) -> None:
    result, seen = ran
    (web,) = result.others
    assert (web.name, web.slo_ms) == ("web", 5)
    assert 80 <= len(result.requests.ok) <= 180, "50 a second for 2.5 s"
    assert 170 <= len(web.requests.ok) <= 330, "100 a second"
    assert result.requests.ok.mean() > 0.9
    assert web.requests.ok.mean() > 0.9
    assert seen["load"] == 0, "the load generators end before the daemon"


@pytest.mark.live
def test_each_application_has_its_own_group_and_folders(
    ran: tuple[BlockResult, dict[str, object]],
) -> None:
    _, seen = ran
    assert seen["servers"] == [1, 1]
    assert seen["warm"] == [True, True]
    usage = seen["usage"]
    assert isinstance(usage, list)
    assert usage[1] - usage[0] > 30 * MIB, "the second one holds 40 MiB"
    assert seen["populated"] is False
    assert seen["left"] == []


@pytest.mark.live
def test_the_daemon_is_told_of_each_application(
    ran: tuple[BlockResult, dict[str, object]],
) -> None:
    config = ran[1]["config"]
    assert isinstance(config, DaemonConfig)
    cache, web = config.applications
    assert (cache.name, web.name) == ("cache", "web")
    assert config.targets_ms == (2, 5)
    assert config.latency is None
    assert cache.group is not None
    assert cache.group.endswith("/app")
    assert web.group is not None
    assert web.group.endswith("/app-web")
    assert isinstance(cache.latency, LinesLatency)
    assert isinstance(web.latency, LinesLatency)
    assert cache.latency.path != web.latency.path
    assert config.protected_groups[1].endswith("-load"), "the load generator is left alone"
