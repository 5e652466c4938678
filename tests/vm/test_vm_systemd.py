"""The daemon under systemd: its unit forbids what it must, and the daemon can do all it needs.

A daemon takes about a minute to start in the emulated machine, so the tests share one.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import unit_probe
from pressed_zone import MIB, wait_for
from systemd_manager import Manager, why_missing
from systemd_node import ADDRESS, PYTHON, SLOW, UNTOUCHED, Node, config_of, unit_of

from stallward.actuator.cli.unit.text import UNIT_NAME
from stallward.actuator.client import ActuatorClient
from stallward.actuator.client.status import DaemonStatus
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.errors import DaemonError, DaemonUnavailableError
from stallward.actuator.levers.cgroup.vm_settings import WRITTEN_FILES
from stallward.agent.desired import RELEASED, DesiredState, SlotDesire, Tuning

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1200)]

LATE_GUARDIAN = "did not take a journal entry within"
"""The emulated machine is slow: the change is made at a later tick."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, swap: Path) -> Iterator[Node]:
    if reason := why_missing():
        pytest.skip(reason)
    manager = Manager(tmp_path_factory.mktemp("systemd"))
    made = Node(manager)
    try:
        made.start_work()
        yield made
    finally:
        made.stop_work()
        manager.close()


@pytest.fixture(scope="module")
def daemon(node: Node) -> Node:
    """The node, with a daemon under the narrowest unit."""
    node.install(config_of())
    node.manager.start(UNIT_NAME)
    return node


def hold(client: ActuatorClient, desired: DesiredState) -> None:
    """Apply a state for a minute, unless the daemon is too slow to answer."""
    with contextlib.suppress(DaemonUnavailableError):
        client.apply(desired, lease_s=60.0, holder="test")


def status_of(node: Node) -> DaemonStatus | None:
    """The daemon's status; ``None`` while it does not answer."""
    try:
        with node.client() as client:
            return client.status()
    except DaemonError:
        return None


NEEDED = frozenset(
    {
        *(f"write {name}" for name in WRITTEN_FILES),
        *("write zone", "write oom_score_adj", "read smaps_rollup", "read io", "process_madvise"),
        *("signal", "nice", "affinity", "realtime", "mlockall", "trigger", "loopback"),
        *("create /run/stallward", "create /var/lib/stallward"),
    }
)
"""The tries that the daemon needs to succeed."""


def probe(node: Node, config: DaemonConfig) -> dict[str, str]:
    """The outcomes of all tries inside of a unit, by name."""
    foreign = node.inside("edge.slice/hog.service").pid
    node.manager.path("/run/units/probe.py").write_text(Path(unit_probe.__file__).read_text())
    command = f"{PYTHON} /run/units/probe.py {foreign} {ADDRESS} /sys/fs/cgroup/edge.slice"
    lines = unit_of(config).splitlines()
    dropped = ("Exec", "Type=", "Restart", "Watchdog", "NotifyAccess", "StandardOutput")
    kept = [line for line in lines if not line.startswith(dropped)]
    kept.insert(kept.index("[Service]") + 1, f"Type=oneshot\nExecStart={command}")
    node.manager.write_unit("probe.service", "\n".join(kept), slow=SLOW)
    node.manager.start("probe.service")
    found: dict[str, str] = json.loads(node.manager.path("/run/stallward/probe.json").read_text())
    if "ProtectHome=read-only" in lines:  # Python lies in a home
        assert found.pop("list homes") == "ok"
    return found


def test_nobody_inside_the_unit_can_do_more_than_the_daemon_needs(node: Node) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "addr", "replace", f"{ADDRESS}/32", "dev", "lo"], check=True)
    found = probe(node, config_of(metrics="127.0.0.1:9180"))
    done = {name for name, outcome in found.items() if outcome == "ok"}
    assert done == NEEDED | {"open memory"}, found
    other_files = {name for name in found if name.startswith("write")} - NEEDED
    assert {found[name] for name in other_files} <= {"EROFS", "EACCES"}, found
    refused = ("ptrace", "process_vm_writev", "other machine", "bpf", "mount", "setuid")
    assert {found[name] for name in refused} == {"EPERM"}, found


def test_every_lever_works_under_the_unit(daemon: Node) -> None:
    node, scan = daemon, daemon.inside("edge.slice/scan.scope")
    before = node.settings()
    assert UNTOUCHED.items() <= before.items()
    desired = DesiredState(
        slots=(
            SlotDesire(
                paused=True,
                limit_bytes=16 * MIB,
                hard_limit_bytes=96 * MIB,
                cpu_weight=7,
                cpu_max_cores=0.25,
                io_max_bytes_per_s=4 * MIB,
                nice=7,
                cpus=(1,),
                page_advice="pageout",
            ),
            SlotDesire(swap_max_bytes=64 * MIB, page_advice="cold"),
        ),
        tuning=Tuning(name="try", swappiness=77, dirty_ratio=33, dirty_background_ratio=7),
        stopped=(scan,),
        protect_from_oom=True,
        protected_low_bytes=20 * MIB,
    )
    (stopped,) = node.manager.pids("edge.slice/scan.scope")

    def has_reference() -> bool:
        status = status_of(node)
        tick = None if status is None else status.last_tick
        return tick is not None and tick.sample.slot_states[0].reference_bytes is not None

    def has_shares() -> bool:
        """Whether a thread of the daemon has read what another user's process shares."""
        status = status_of(node)
        tick = None if status is None else status.last_tick
        return tick is not None and any(slot.pss_bytes for slot in tick.sample.slots)

    # A limit refers to what a group used while it ran, so it must have run before it is paused.
    assert wait_for(has_reference, 120.0), node.manager.log()
    with node.client() as client:

        def unmoved() -> set[str]:
            hold(client, desired)
            state = Path(f"/proc/{stopped}/stat").read_text().rpartition(")")[2].split()[0]
            now = node.settings()
            same = {name for name in before if now[name] == before[name]}
            return same if state == "T" else {*same, "stop"}

        try:
            assert wait_for(lambda: unmoved() == {"scan.scope/memory.high"}, 240.0), unmoved()
            # Only a reclaim by the limit, or advice on another user's pages, moves them to swap.
            assert wait_for(lambda: int(node.read("hog.service/memory.swap.current")) > 8 * MIB)
            assert wait_for(has_shares, 180.0), status_of(node)
            failed = {result.error for result in node.results() if not result.ok}
            assert {error for error in failed if LATE_GUARDIAN not in error} == set()
        finally:  # so that the test can be repeated
            client.apply(RELEASED, lease_s=60.0, holder="test")
            released = wait_for(lambda: node.settings() == before)
        assert released, node.settings()


def test_a_limit_that_systemd_puts_back_is_systemds(daemon: Node) -> None:
    """A reload, and a change of the unit's own limit, while the daemon limits its scope."""
    node = daemon
    high = "scan.scope/memory.high"
    desired = DesiredState(slots=(SlotDesire(), SlotDesire(limit_bytes=20 * MIB)))

    def aside() -> bool:
        status = status_of(node)
        return status is not None and status.stepped_aside > 0

    with node.client() as client:

        def limited() -> bool:
            hold(client, desired)
            return node.read(high) == str(20 * MIB)

        assert wait_for(limited, 180.0), (node.read(high), status_of(node), node.manager.log())
        node.manager.run("systemctl", "daemon-reload")
        node.manager.start("other.service")  # now systemd writes what it has in mind
        node.manager.run("systemctl", "set-property", "--runtime", "scan.scope", "MemoryHigh=150M")
        assert node.read(high) == str(150 * MIB)
        hold(client, desired)
        assert wait_for(aside, 60.0)
        assert node.read(high) == str(150 * MIB), "the daemon fights with systemd"
        # Later it limits again, and then what systemd set is the original.
        assert wait_for(limited, 180.0), (node.read(high), status_of(node))
        node.manager.run("systemctl", "daemon-reload")
        client.apply(RELEASED, lease_s=60.0, holder="test")
        assert wait_for(lambda: node.read(high) == str(150 * MIB)), node.read(high)
    node.manager.run("systemctl", "set-property", "--runtime", "scan.scope", "MemoryHigh=infinity")
    assert node.manager.is_active(UNIT_NAME)


def test_when_all_its_processes_are_killed_systemd_has_all_put_back(daemon: Node) -> None:
    node = daemon
    before = node.settings()
    slots = (SlotDesire(paused=True, cpu_weight=7, nice=7), SlotDesire(limit_bytes=20 * MIB))
    tuning = Tuning(name="try", swappiness=77)
    desired = DesiredState(slots=slots, tuning=tuning, protect_from_oom=True)
    with node.client() as client:

        def held() -> bool:
            hold(client, desired)
            now = node.settings()
            return sum(now[name] != before[name] for name in before) >= 6

        assert wait_for(held, 240.0), node.settings()
    node.manager.run("systemctl", "kill", "--signal=SIGKILL", "--kill-who=all", UNIT_NAME)
    assert wait_for(lambda: node.settings() == before, 240.0), (
        node.settings(),
        node.manager.log(),
    )
    assert wait_for(lambda: node.manager.show(UNIT_NAME, "NRestarts") == "1", 60.0)
    assert wait_for(lambda: node.manager.is_active(UNIT_NAME), 400.0), node.manager.log()


def test_with_a_port_the_unit_allows_it(daemon: Node) -> None:
    node = daemon
    node.manager.run("systemctl", "stop", UNIT_NAME)
    assert node.manager.show(UNIT_NAME, "Result") == "success"
    node.install(config_of(page_cache="auto", metrics="127.0.0.1:9180"))
    node.manager.start(UNIT_NAME)
    script = (
        "import urllib.request as r\n"
        "print(r.urlopen('http://127.0.0.1:9180/metrics', timeout=60).status)"
    )
    answer = (sys.executable, "-S", "-E", "-c", script)
    assert wait_for(lambda: node.manager.run(*answer, check=False) == "200", 120.0)


def test_a_kernel_that_forbids_ptrace_closes_the_last_way(node: Node) -> None:
    """It stays forbidden until the next boot, so this comes last."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if not scope.exists():
        pytest.skip("this kernel has no Yama; the emulated machine's has (MACHINE=emulated)")
    scope.write_text("3")
    found = probe(node, config_of(page_cache="auto", metrics="127.0.0.1:9180"))
    assert found["open memory"] == "EACCES"
    assert {name for name, outcome in found.items() if outcome == "ok"} == NEEDED, found
    # This unit is for eBPF: the kernel looks at both calls, and finds their arguments wrong.
    assert not {"EPERM", "ok"} & {found["bpf"], found["open_by_handle_at"]}, found
