"""The doctor says what works, what does not and why, and changes nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.doctor.configuration import try_work
from stallward.actuator.doctor.doctor import Diagnosis, examine
from stallward.actuator.doctor.finding import Finding
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.privileges import effective_capabilities, may_have, other_daemons
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.levers.process.page_advice import why_no_advice
from stallward.actuator.work.config import (
    CommandWork,
    CpuWork,
    FileWork,
    PrometheusWork,
    WorkConfig,
)
from stallward.agent.registry import make_controller


def finding_of(diagnosis: Diagnosis, name: str) -> Finding:
    return next(f for f in diagnosis.findings if f.name == name)


@pytest.fixture
def bare(tmp_path: Path) -> Paths:
    """A machine without cgroups, PSI, swap and rights."""
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "status").write_text("Name:\tx\nCapEff:\t0000000000000000\n")
    (proc / "swaps").write_text("Filename\tType\tSize\tUsed\tPriority\n")
    (tmp_path / "cgroup").mkdir()
    return Paths(proc=proc, cgroup=tmp_path / "cgroup")


def test_a_machine_on_which_nothing_can_be_held_back(bare: Paths) -> None:
    diagnosis = examine(bare)
    assert diagnosis.kind == "none"
    assert not diagnosis.protectable
    assert "hold background work back" in diagnosis.obstacles[0]
    assert finding_of(diagnosis, "PSI").state == "missing"
    assert "psi=1" in finding_of(diagnosis, "PSI").next_step
    assert finding_of(diagnosis, "swap").state == "degraded"
    assert finding_of(diagnosis, "CAP_SYS_NICE").state == "degraded"


@pytest.mark.parametrize(
    ("devices", "zswap", "said"),
    [
        ("/swapfile file 9 0 -2\n", "N", ""),
        ("/dev/zram0 partition 9 0 100\n", "N", "/dev/zram0 compresses it into memory; `part"),
        ("/swapfile file 9 0 -2\n", "Y", "zswap compresses it into at most 20 % of the memory"),
    ],
)
def test_swap_that_takes_memory_itself_is_named(
    bare: Paths, tmp_path: Path, devices: str, zswap: str, said: str
) -> None:
    (bare.proc / "swaps").write_text("Filename\tType\tSize\tUsed\tPriority\n" + devices)
    parameters = tmp_path / "sys/module/zswap/parameters"
    parameters.mkdir(parents=True)
    (parameters / "enabled").write_text(f"{zswap}\n")
    (parameters / "max_pool_percent").write_text("20\n")
    swap = finding_of(examine(replace(bare, sys=tmp_path / "sys")), "swap")
    assert swap.state == "works"
    assert swap.why.startswith(said)
    assert bool(swap.why) == bool(said)


def test_signals_alone_are_enough_to_hold_work_back(bare: Paths) -> None:
    (bare.proc / "self" / "status").write_text("CapEff:\t00000000000000e0\n")
    assert effective_capabilities(bare.proc) == frozenset({"CAP_KILL"})
    diagnosis = examine(bare)
    assert diagnosis.protectable
    assert finding_of(diagnosis, "stop processes").state == "works"


def test_root_in_a_container_is_told_what_the_container_lacks(
    bare: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cgroups are mounted read-only, and it has no capability."""
    (bare.proc / "self/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 ro 0 0\n")
    (bare.cgroup / "cgroup.controllers").write_text("cpu memory io\n")
    read_only = SimpleNamespace(f_flag=os.ST_RDONLY)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "statvfs", lambda _: read_only)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    diagnosis = examine(bare)
    assert not diagnosis.protectable
    assert not any("as root" in f"{f.why} {f.next_step}".lower() for f in diagnosis.findings)
    for name in ("pause", "limit", "hold back"):
        assert (
            "give the container /sys/fs/cgroup read-write" in finding_of(diagnosis, name).next_step
        )
    assert finding_of(diagnosis, "limit").why == f"{bare.cgroup} is mounted read-only"
    assert "/proc/sys" in finding_of(diagnosis, "tune vm.*").next_step
    assert "container" in finding_of(diagnosis, "CAP_KILL").next_step
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "Run as root" in finding_of(examine(bare), "CAP_KILL").next_step


@pytest.mark.parametrize("status", ["CapEff:\tzz\n", "CapEff:\n", "", None])
def test_rights_that_cannot_be_read_may_be_there_but_are_not_counted_on(
    bare: Paths, status: str | None
) -> None:
    file = bare.proc / "self" / "status"
    file.unlink() if status is None else file.write_text(status)
    assert effective_capabilities(bare.proc) is None
    assert may_have("CAP_KILL", bare.proc), "a lever tries it"
    assert finding_of(examine(bare), "CAP_KILL").state == "degraded"


def test_a_lever_that_lacks_a_right_says_so(bare: Paths) -> None:
    assert not may_have("CAP_SYS_NICE", bare.proc)
    assert why_no_advice(bare.proc) == "process_madvise needs CAP_SYS_NICE"


def test_a_kernel_that_reclaims_idle_memory_is_named(bare: Paths, tmp_path: Path) -> None:
    paths = replace(bare, sys=tmp_path / "sys")
    assert not any(f.name == "DAMON" for f in examine(paths).findings)
    daemon = paths.sys / "kernel/mm/damon/admin/kdamonds/0"
    scheme = daemon / "contexts/0/schemes/0"
    for file, text in {
        daemon / "state": "on\n",
        daemon / "contexts/0/monitoring_attrs/intervals/aggr_us": "5000000\n",
        scheme / "action": "pageout\n",
        scheme / "access_pattern/age/min": "12\n",
    }.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    finding = finding_of(examine(paths), "DAMON")
    assert finding.state == "degraded"
    assert "were idle for 60 s" in finding.why
    module = paths.sys / "module/damon_reclaim/parameters"
    module.mkdir(parents=True)
    (module / "enabled").write_text("Y\n")
    (module / "min_age").write_text("30000000\n")
    assert "were idle for 30 s" in finding_of(examine(paths), "DAMON").why, "the soonest counts"
    (module / "enabled").write_text("N\n")
    for file, text in ((scheme / "action", "stat\n"), (daemon / "state", "off\n")):
        before = file.read_text()
        file.write_text(text)
        assert not any(f.name == "DAMON" for f in examine(paths).findings)
        file.write_text(before)


def test_daemons_that_kill_what_we_pause_are_named(bare: Paths) -> None:
    names = ("earlyoom", "bash", "systemd-oomd", "oomd_bin", "senpai")
    for pid, name in enumerate(names, start=7):
        (bare.proc / str(pid)).mkdir()
        (bare.proc / str(pid) / "comm").write_text(f"{name}\n")
    there = ((7, "earlyoom"), (9, "systemd-oomd"), (10, "oomd_bin"), (11, "senpai"))
    assert other_daemons(bare) == there
    finding = finding_of(examine(bare), "systemd-oomd")
    assert finding.state == "degraded"
    assert "process 9" in finding.why
    assert finding.next_step


@pytest.mark.parametrize(
    ("agent", "does"),
    [
        (
            "koordlet",
            "limits pods (memoryQOS: memory.min, memory.low, memory.high; CPU suppress) and "
            "evicts them (BEMemoryEvict)",
        ),
        ("katalyst-agent", "limits, reclaims and evicts pods (memory advisor)"),
    ],
)
def test_another_agent_of_a_cluster_is_named_with_its_settings(
    bare: Paths, agent: str, does: str
) -> None:
    assert not any(one.name == agent for one in examine(bare).findings)
    process = bare.proc / "4711"
    process.mkdir()
    (process / "comm").write_text(f"{agent}\n")
    found = finding_of(examine(bare), agent)
    assert (found.area, found.state) == ("node", "degraded")
    assert found.why == f"runs as process 4711 and {does}, also what is paused"
    assert found.next_step == "Stop it, or exempt the groups that stallward looks after."


def config(tmp_path: Path, **changes: object) -> DaemonConfig:
    values: dict[str, object] = {
        "node": NodeConfig(zone="/", cgroup=tmp_path / "no-cgroups"),
        "protected": ProtectedConfig(processes=ProcessesConfig(pids=(os.getpid(),))),
        "background": (SlotConfig(name="a", processes=ProcessesConfig(pids=(2**22 - 3,))),),
        "service": ServiceConfig(socket=tmp_path / "run" / "s.sock"),
        "journal": JournalConfig(path=tmp_path / "journal"),
    }
    return DaemonConfig(**{**values, **changes})  # type: ignore[arg-type]


def test_each_source_of_work_is_tried(tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    steps.write_text("12\n")

    def slot(name: str, work: WorkConfig) -> SlotConfig:
        return SlotConfig(name=name, group=name, work=work)

    findings = list(
        try_work(
            (
                slot("plain", CpuWork()),
                slot("counted", FileWork(path=steps, unit="images")),
                slot("gone", FileWork(path=tmp_path / "gone")),
                slot("down", PrometheusWork(url="http://127.0.0.1:1/", metric="m")),
                slot("slow", CommandWork(command=("/bin/sleep", "60"), timeout_s=0.1)),
                slot("odd", CommandWork(command=("/bin/echo", "-3"))),
            )
        )
    )
    assert [finding.name for finding in findings][:2] == ["work of plain", "work of counted"]
    assert findings[0].why == "its processor time"
    assert findings[1].why == "12 images so far, from file"
    assert [finding.state for finding in findings] == ["works"] * 2 + ["degraded"] * 4
    assert all(finding.next_step for finding in findings[2:])
    said = [finding.why for finding in findings[2:]]
    for text, part in zip(
        said, ("gone cannot be read", "refuses", "long", "negative"), strict=True
    ):
        assert part in text


@pytest.mark.live
def test_a_configuration_is_looked_at_and_nothing_is_changed(tmp_path: Path) -> None:
    (tmp_path / "no-cgroups").mkdir()
    asked = config(tmp_path)
    diagnosis = examine(asked.node.paths, asked)
    assert diagnosis.kind == "none"
    assert diagnosis.protectable, diagnosis.obstacles
    assert finding_of(diagnosis, "pause:a").state == "works"
    assert not asked.journal.path.exists()
    assert not (tmp_path / "run").exists()


@pytest.mark.live
@pytest.mark.parametrize(
    ("controller", "said"),
    [
        ("partition", ""),
        ("partion", "partion"),
        ("partition:margin_share=9", "margin_share"),
        ("onnx:path=/nowhere.onnx", "nowhere"),
    ],
)
def test_a_controller_that_the_daemon_would_refuse_is_an_obstacle(
    tmp_path: Path, controller: str, said: str
) -> None:
    (tmp_path / "no-cgroups").mkdir()
    asked = config(tmp_path, control=ControlConfig(controller=controller))
    diagnosis = examine(asked.node.paths, asked, make_controller)
    found = finding_of(diagnosis, "controller")
    assert (found.state == "missing") == bool(said), found
    assert diagnosis.protectable is not bool(said)
    assert said in found.why


@pytest.mark.live
def test_a_lever_that_the_daemon_cannot_load_is_an_obstacle(tmp_path: Path) -> None:
    (tmp_path / "no-cgroups").mkdir()
    asked = config(tmp_path, control=ControlConfig(levers=("bell",)))
    diagnosis = examine(asked.node.paths, asked, make_controller)
    found = finding_of(diagnosis, "levers")
    assert (found.state, found.why) == ("missing", "The lever 'bell' is not installed.")
    assert found.why in diagnosis.obstacles
    assert found.next_step.startswith("Choose one of: ")
    assert finding_of(diagnosis, "controller").state == "works"


@pytest.mark.live
def test_a_pid_file_that_is_not_followed_is_said(tmp_path: Path) -> None:
    (tmp_path / "no-cgroups").mkdir()
    path = tmp_path / "x.pid"
    os.mkfifo(path)
    slot = SlotConfig(name="a", processes=ProcessesConfig(pidfile=path))
    asked = config(tmp_path, background=(slot,))
    found = finding_of(examine(asked.node.paths, asked), "processes")
    assert (found.state, found.why) == ("degraded", f"{path} is not a file")


@pytest.mark.live
def test_a_group_that_is_not_there_is_an_obstacle(tmp_path: Path) -> None:
    asked = config(
        tmp_path,
        node=NodeConfig(zone="/"),
        protected=ProtectedConfig(group="stallward-nowhere/app"),
        background=(SlotConfig(name="a", group="stallward-nowhere/a"),),
    )
    diagnosis = examine(asked.node.paths, asked)
    assert not diagnosis.protectable
    assert any("stallward-nowhere/app" in text for text in diagnosis.obstacles)


def test_a_leftover_journal_is_reported(bare: Paths, tmp_path: Path) -> None:
    asked = config(tmp_path, node=NodeConfig(zone="/", proc=bare.proc, cgroup=bare.cgroup))
    asked.journal.path.write_text("something\n")
    assert finding_of(examine(bare, asked), "journal").state == "degraded"


def test_this_machine_is_of_one_of_three_kinds() -> None:
    diagnosis = examine(Paths())
    assert diagnosis.kind in {"v2", "hybrid", "none"}
    assert diagnosis.why
    assert Hierarchy().kind == "none"
