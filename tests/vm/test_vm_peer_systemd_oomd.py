"""systemd-oomd runs as a peer where no systemd does: it kills what presses in a real sandbox.

It runs as its package has it, with less patience and a lower limit, so that a test is short.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from pressed_zone import HOG, IDLE, MIB, wait_for

from stallward.actuator.kernel.paths import Paths
from stallward.env.sandbox.launch import start
from stallward.env.sandbox.peers import managed_groups
from stallward.env.sandbox.peers.programs import RunningPeer, find_peer, why_not
from stallward.env.sandbox.sandbox import open_sandbox
from stallward.env.scenario.scenario import Command, Places

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]

PEER = find_peer("systemd-oomd")
PERCENT, SECONDS = 5.0, 1
SETTINGS = f"[OOM]\nDefaultMemoryPressureDurationSec={SECONDS}s\n"
RECLAIMS_S = 120.0


def python(code: str, *arguments: object) -> Command:
    return Command(argv=(sys.executable, "-S", "-E", "-c", code, *map(str, arguments)))


def test_it_kills_the_group_that_presses_and_leaves_nothing(
    tmp_path: Path, swap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    if missing := why_not(PEER):
        pytest.skip(missing)
    monkeypatch.setattr(managed_groups, "_PRESSURE_PERCENT", PERCENT)
    places = Places(
        data=tmp_path,
        run=tmp_path,
        scratch=tmp_path,
        python=sys.executable,
        workloads=tmp_path,
        seed=1,
    )
    mounts = Path("/proc/mounts").read_text()
    run = sorted(Path("/run").iterdir())
    with open_sandbox(
        slots=2,
        limit_bytes=96 * MIB,
        swap_bytes=256 * MIB,
        cache_dir=tmp_path,
        state_dir=tmp_path / "state",
    ) as sandbox:
        settings = sandbox.folder / "systemd/systemd/oomd.conf.d/99-test.conf"
        settings.parent.mkdir(parents=True)
        settings.write_text(SETTINGS)
        programs = [start("app", python(IDLE), sandbox.protected, places)]
        with RunningPeer(PEER, sandbox, places) as peer:
            log = peer.program.log
            zone = f"/{sandbox.zone.name}"
            for name, command, slot in (
                ("calm", python(IDLE), sandbox.slots[0]),
                ("hog", python(HOG, 160), sandbox.slots[1]),
            ):
                programs.append(start(name, command, slot, places, inside=peer.enter))
            assert wait_for(lambda: bool(sandbox.slots[1].pids())), log.read_text()

            def is_gone() -> bool:
                peer.program.check(may_end=False)
                return not sandbox.slots[1].pids()

            gone = wait_for(is_gone, RECLAIMS_S)
            text = log.read_text()
            assert gone, text[-4000:]
            said = f"Killed {sandbox.slots[1].name} due to memory pressure for {zone}"
            assert wait_for(lambda: "Killed /" in log.read_text()), log.read_text()[-4000:]
            assert said.replace("Killed ", "Killed /") in log.read_text()
            assert peer.count_ended() == 1
            assert sandbox.oom_kills() == 0, "the kernel was first"
            assert sandbox.protected.pids()
            assert sandbox.slots[0].pids()
            peer.program.check(may_end=False)
            started = psutil.Process().children(recursive=True)
        assert not sandbox.peer.populated()
        assert not any(one.name() == "systemd-oomd" for one in started if one.is_running())
        sandbox.zone.kill()
        left = (
            sandbox.folder,
            *(Paths().cgroup / one.name for one in (sandbox.zone, sandbox.peer)),
        )
    for program in programs:  # they were killed with the sandbox
        program.process.wait()
    assert not any(path.exists() for path in left)
    assert Path("/proc/mounts").read_text() == mounts
    assert sorted(Path("/run").iterdir()) == run
