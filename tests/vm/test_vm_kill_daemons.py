"""oomd and a real systemd's systemd-oomd kill the group that the rules of their names would kill.

Both run as packaged, with less patience: the thresholds are lower, so that a test is short. The
rule's are lower still, because it has to say whom before the group is gone.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pressed_zone import HOG, IDLE, MIB, Zone, wait_for
from rule_beside import RuleBeside
from systemd_manager import Manager, why_missing
from systemd_node import OUTPUT, PYTHON

from stallward.actuator.kernel.paths import Paths
from stallward.env.sandbox.peers import programs as oomd
from stallward.env.sandbox.peers.programs import find_peer
from stallward.env.sandbox.sandbox import Sandbox

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]

OOMD = Path("/usr/bin/oomd")
SYSTEMD_OOMD = Path("/lib/systemd/systemd-oomd")
UNITS = Path("/lib/systemd/system")
PERCENT, SECONDS = 10, 2
LIMIT = 96 * MIB
NUMBERS = f"kill=0,pressure_percent={PERCENT / 2},duration_s={SECONDS // 2}"


@contextlib.contextmanager
def beside(spec: str, zone: str, folder: Path, slots: tuple[str, ...]) -> Iterator[RuleBeside]:
    rule = RuleBeside(
        spec,
        zone=zone,
        protected=slots[0],
        slots=slots[1:],
        limit_bytes=LIMIT,
        folder=folder,
    )
    try:
        yield rule
    finally:
        rule.close()


def test_oomd_kills_the_group_that_the_rule_would_kill(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not OOMD.exists():
        pytest.skip("oomd is not installed")
    monkeypatch.setattr(oomd, "_PRESSURE_PERCENT", PERCENT)
    monkeypatch.setattr(oomd, "_PRESSURE_S", SECONDS)
    sandbox = Sandbox(
        zone=zone.zone,
        protected=zone.app,
        slots=zone.slots,
        load=zone.zone.child("load"),
        peer=zone.zone.child("peer"),
        folder=zone.folder,
        paths=Paths(),
    )
    config = zone.folder / "config"
    config.write_text(oomd.oomd_rules(sandbox))
    zone.start(zone.app, IDLE)
    zone.start(zone.slots[0], IDLE)
    zone.start(zone.slots[1], HOG, 160)
    values = {
        "{config}": str(config),
        "{groups}": str(zone.zone.hierarchy.unified_root),
        "{state}": str(zone.folder),
    }
    peer = find_peer("oomd")
    with (zone.folder / "log").open("wb") as log:
        program = subprocess.Popen(
            [values.get(word, word) for word in peer.command], stdout=log, stderr=log
        )
    try:
        names = tuple(group.name.rpartition("/")[2] for group in (zone.app, *zone.slots))
        with beside(f"oomd:{NUMBERS}", zone.zone.name, zone.folder, names) as rule:
            killed = rule.until(lambda: not zone.slots[1].pids() and bool(rule.said))
        text = (zone.folder / "log").read_text("utf-8", "replace")
        assert killed, text[-2000:]
        assert rule.said[0] == zone.slots[1].name
        assert peer.count_ended(text) == 1
        assert zone.app.pids()
        assert zone.slots[0].pids()
    finally:
        program.kill()
        program.wait()


@pytest.fixture
def manager(tmp_path: Path, swap: Path) -> Iterator[Manager]:
    if reason := why_missing():
        pytest.skip(reason)
    if not SYSTEMD_OOMD.exists():
        pytest.skip("systemd-oomd is not installed")
    made = Manager(tmp_path)
    try:
        yield made
    finally:
        made.close()


SLOW = f"[Service]\nTimeoutStartSec=300\nWatchdogSec=0\n{OUTPUT}"


def test_systemd_oomd_kills_the_group_that_the_rule_would_kill(
    manager: Manager, tmp_path: Path
) -> None:
    settings = manager.path("/run/systemd/oomd.conf.d")
    settings.mkdir()
    (settings / "99-test.conf").write_text(f"[OOM]\nDefaultMemoryPressureDurationSec={SECONDS}s\n")
    for name, extra in (("systemd-oomd.socket", ""), ("systemd-oomd.service", SLOW)):
        manager.write_unit(name, (UNITS / name).read_text(), **({"slow": extra} if extra else {}))
    manager.start("systemd-oomd.service")
    folder = manager.path("/run/units")
    (folder / "idle.py").write_text(IDLE)
    (folder / "hog.py").write_text(HOG)
    manager.write_unit(
        "edge.slice",
        f"[Slice]\nMemoryMax={LIMIT}\nManagedOOMMemoryPressure=kill\n"
        f"ManagedOOMMemoryPressureLimit={PERCENT}%\n",
    )
    for name, program, extra in (
        ("app", "idle", "ManagedOOMPreference=omit\n"),
        ("calm", "idle", ""),
        ("hog", "hog", ""),
    ):
        manager.write_unit(
            f"{name}.service",
            f"[Service]\nExecStart={PYTHON} /run/units/{program}.py 160\n"
            f"Slice=edge.slice\n{extra}{OUTPUT}",
        )
        manager.start(f"{name}.service")
    names = ("app.service", "calm.service", "hog.service")
    zone = f"{manager.group('edge.slice').relative_to(Paths().cgroup)}"
    with beside(f"systemd-oomd:{NUMBERS}", zone, tmp_path, names) as rule:
        killed = rule.until(lambda: not manager.is_active("hog.service") and bool(rule.said))
    assert killed, manager.log()
    assert rule.said[0] == f"{zone}/hog.service"
    assert manager.show("hog.service", "Result") == "oom-kill"
    assert wait_for(lambda: "Killed" in manager.log()), manager.log()
    assert manager.is_active("app.service")
    assert manager.is_active("calm.service")
