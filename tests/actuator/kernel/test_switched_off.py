"""What is switched off is told from what is not there, and from what works: PSI above all."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from own_names import own_name

from stallward.actuator.doctor.doctor import examine
from stallward.actuator.errors import NodeError
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.files import why_unreadable
from stallward.actuator.kernel.hierarchies import detect, missing, require
from stallward.actuator.kernel.memory.pressure import why_no_psi
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.kernel.process_table import why_no_pidfd
from stallward.actuator.kernel.process_trees import Forest
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.lever_set import LeverSet
from stallward.actuator.levers.process.tree_pause import TreePause
from stallward.actuator.node.stall_watch import StallWatch
from stallward.actuator.sensors.missing import Why, absences
from stallward.actuator.sensors.readers import ReadApplication
from stallward.actuator.sensors.sampler import Sampler
from stallward.agent.sample import SlotState

TOTALS = "some avg10=0.00 avg60=0.00 avg300=0.00 total=3\n"

SwitchOff = Callable[[Path], None]


@pytest.fixture
def switch_off(monkeypatch: pytest.MonkeyPatch) -> SwitchOff:
    """Let reading the files below a folder fail, as the kernel does for PSI that is off."""
    folders: list[Path] = []

    def refuse_if_off(fd: int) -> None:
        name = Path(f"/proc/self/fd/{fd}").readlink() if fd >= 0 else Path("/")
        if any(name.is_relative_to(folder) for folder in folders):
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    real_read, real_pread = os.read, os.pread

    def read(fd: int, count: int) -> bytes:
        refuse_if_off(fd)
        return real_read(fd, count)

    def pread(fd: int, count: int, offset: int) -> bytes:
        refuse_if_off(fd)
        return real_pread(fd, count, offset)

    monkeypatch.setattr(os, "read", read)
    monkeypatch.setattr(os, "pread", pread)
    return folders.append


@pytest.fixture
def machine(tmp_path: Path) -> Paths:
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cg")
    for folder in (paths.proc / "pressure", paths.proc / "self", paths.cgroup):
        folder.mkdir(parents=True)
    for name in ("memory", "io", "cpu"):
        (paths.proc / "pressure" / name).write_text(TOTALS)
    (paths.proc / "mounts").write_text("")
    return paths


def test_pressure_that_can_be_read_works(machine: Paths) -> None:
    assert why_no_psi(machine.proc / "pressure/memory") is None
    assert not any(reason.startswith("PSI:") for reason in missing(machine, detect(machine)))


def test_pressure_that_is_switched_off_is_named_with_the_next_step(
    machine: Paths, switch_off: SwitchOff
) -> None:
    switch_off(machine.proc / "pressure")
    no_psi = why_no_psi(machine.proc / "pressure/memory")
    assert no_psi is not None
    assert no_psi.off
    assert no_psi.cause.startswith("PSI is off")
    assert "psi=1" in no_psi.next_step


def test_doctor_and_sandbox_do_not_take_a_file_for_a_feature(
    machine: Paths, switch_off: SwitchOff
) -> None:
    def psi() -> tuple[str, str, str]:
        found = next(f for f in examine(machine).findings if f.name == "PSI")
        return found.state, found.why, found.next_step

    assert psi()[0] == "works"
    switch_off(machine.proc / "pressure")
    state, why, next_step = psi()
    assert state == "missing"
    assert "PSI is off" in why
    assert next_step == "Boot with psi=1."
    with pytest.raises(NodeError, match=r"PSI is off: .*psi=1"):
        require(machine)


def test_pressure_that_nobody_compiled_in_is_another_cause(machine: Paths) -> None:
    (machine.proc / "pressure/memory").unlink()
    no_psi = why_no_psi(machine.proc / "pressure/memory")
    assert no_psi is not None
    assert not no_psi.off
    assert "CONFIG_PSI=y" in no_psi.next_step


def make_group(cgroup: Path, name: str) -> Path:
    folder = cgroup / name
    folder.mkdir(parents=True)
    (folder / "cgroup.pressure").write_text("1\n")
    (folder / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    (folder / "cgroup.procs").write_text("")
    (folder / "memory.current").write_text("11\n")
    for resource in ("memory", "io", "cpu"):
        (folder / f"{resource}.pressure").write_text(TOTALS)
    return folder


def hide_pressure(folder: Path) -> None:
    """What the kernel does when 0 is written to the group's ``cgroup.pressure``."""
    (folder / "cgroup.pressure").write_text("0\n")
    for resource in ("memory", "io", "cpu"):
        (folder / f"{resource}.pressure").unlink()


def test_pressure_of_a_single_group_that_is_off_is_named_with_its_switch(tmp_path: Path) -> None:
    folder = make_group(tmp_path, "app")
    assert why_no_psi(folder / "memory.pressure") is None
    hide_pressure(folder)
    no_psi = why_no_psi(folder / "memory.pressure")
    assert no_psi is not None
    assert no_psi.off
    assert f"{folder / 'cgroup.pressure'} is 0" in no_psi.cause
    assert f"Write 1 to {folder / 'cgroup.pressure'}" in no_psi.next_step


def test_absent_pressure_is_reported_as_switched_off(
    machine: Paths, switch_off: SwitchOff
) -> None:
    for name in ("z", "z/app", "z/a", "z/b"):
        make_group(machine.cgroup, name)
    hide_pressure(machine.cgroup / "z/a")
    node = Hierarchy(kind="v2", memory_root=machine.cgroup, unified_root=machine.cgroup)
    zone, app, *slots = (node.group(name) for name in ("z", "z/app", "z/a", "z/b"))
    sampler = Sampler(
        paths=machine,
        hierarchy=node,
        zone=zone,
        applications=[ReadApplication(target=app)],
        slots=tuple(slots),
    )
    states = (SlotState(), SlotState())

    def reasons() -> dict[str, tuple[Why, str]]:
        sample = sampler.read(0, states)
        assert sample.protected.memory_usage_bytes == 11, "the rest is read"
        return {a.signal: (a.why, a.detail) for a in absences(sampler, sample)}

    assert "protected.psi.memory_some_us" not in reasons()
    switch_off(machine.proc / "pressure")
    switch_off(machine.cgroup / "z/app/memory.pressure")
    found = reasons()
    for reading, next_step in (
        ("node.psi.memory_some_us", "Boot with psi=1."),
        ("protected.psi.memory_some_us", "Boot with psi=1."),
        ("slots[0].psi.io_some_us", f"Write 1 to {machine.cgroup}/z/a/cgroup.pressure."),
    ):
        why, detail = found[reading]
        assert why is Why.SWITCHED_OFF
        assert next_step in detail
    assert "slots[1].psi.io_some_us" not in found
    assert sampler.faults == ()
    sampler.close()


def test_a_watch_of_pressure_that_is_off_says_so_and_looks_again(
    tmp_path: Path, switch_off: SwitchOff, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memory.pressure"
    path.write_text(TOTALS)
    switch_off(path)
    watch = StallWatch(path, trigger=False)
    assert "PSI is off" in watch.missing
    assert not watch.has_stalled()
    monkeypatch.undo()
    watch.reopen(now_s=0.0)
    assert watch.missing == ""
    watch.close()


def test_a_file_is_told_by_reading_it(tmp_path: Path, switch_off: SwitchOff) -> None:
    path = tmp_path / "io.max"
    assert why_unreadable(path) == f"no {path}"
    path.write_text("")
    assert why_unreadable(path) == ""
    switch_off(path)
    assert why_unreadable(path) == f"{path} is there, and switched off in this kernel"
    assert why_unreadable(tmp_path).startswith(f"{tmp_path}: ")


def test_a_lever_is_missing_where_its_file_is_switched_off(
    tmp_path: Path, switch_off: SwitchOff
) -> None:
    for name in ("cgroup.freeze", "memory.high", "cpu.max", "io.max", "memory.low"):
        path = tmp_path / "bg" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("0\n")
    (tmp_path / "bg/memory.reclaim").write_text("")
    node = Hierarchy(kind="v2", memory_root=tmp_path, unified_root=tmp_path)
    group = node.group("bg")

    def survey() -> dict[str, str]:
        levers = LeverSet(
            paths=Paths(proc=tmp_path, cgroup=tmp_path, sys=tmp_path),
            hierarchy=node,
            zone=node.group("/"),
            applications=(node.group("app"),),
            slots=(group,),
            zone_limit_bytes=None,
            send_journal=lambda *_: None,
        )
        return dict(levers.survey())

    working = survey()
    for name in ("pause:bg", "limit:bg", "cpu_max:bg", "reclaim:bg"):
        assert working[name] == "", name
    for name in ("cgroup.freeze", "memory.high", "cpu.max"):
        switch_off(tmp_path / "bg" / name)
    (tmp_path / "bg/memory.reclaim").unlink()
    missing_now = survey()
    for name, file in (("pause:bg", "cgroup.freeze"), ("limit:bg", "memory.high")):
        assert f"bg/{file} is there, and switched off in this kernel" in missing_now[name]
    assert "cpu.max is there, and switched off" in missing_now["cpu_max:bg"]
    assert "memory.reclaim" in missing_now["reclaim:bg"]


def refused(*_arguments: object) -> int:
    raise OSError(errno.ENOSYS, "Function not implemented")


@pytest.mark.parametrize(
    ("module", "name", "instead", "why"),
    [
        (os, "pidfd_open", refused, "Function not implemented"),
        (signal, "pidfd_send_signal", refused, "Function not implemented"),
        (os, "pidfd_open", None, "this Python was built without them"),
    ],
)
def test_signals_by_pidfd_are_tried(
    monkeypatch: pytest.MonkeyPatch,
    machine: Paths,
    module: ModuleType,
    name: str,
    instead: object,
    why: str,
) -> None:
    """What the doctor says is what keeps the daemon from stopping processes."""
    assert why_no_pidfd() == ""
    if instead is None:
        monkeypatch.delattr(module, name)
    else:
        monkeypatch.setattr(module, name, instead)
    (found,) = (f for f in examine(machine).findings if f.name == "stop processes")
    assert found.state == "degraded"
    assert found.why == f"no signals by pidfd ({why})"
    tree = Forest(machine.proc, [ProcessesConfig(pids=(1,))], ["batch"]).trees[0]
    assert tree is not None
    pause = TreePause(0, tree, machine.proc, Originals(never, never))
    assert pause.why_missing == found.why


def never(*entries: object) -> None:
    raise AssertionError(f"nothing is held: {entries}")


@pytest.mark.live
def test_the_switch_of_a_real_group_hides_its_files() -> None:
    root = require(Paths()).unified_root
    assert root is not None
    folder = root / f"{own_name()}-psi"
    folder.mkdir()
    try:
        if not (folder / "cgroup.pressure").exists():
            pytest.skip("no cgroup.pressure (kernel 6.1 or newer has it)")
        (folder / "cgroup.pressure").write_text("0")
        no_psi = why_no_psi(folder / "memory.pressure")
        assert no_psi is not None
        assert "cgroup.pressure is 0" in no_psi.cause
        (folder / "cgroup.pressure").write_text("1")
        assert why_no_psi(folder / "memory.pressure") is None
    finally:
        folder.rmdir()
