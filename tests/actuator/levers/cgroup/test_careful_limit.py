"""Where a v1 group cannot be made to wait, a limit takes only what the group does not miss."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stallward.actuator.errors import LeverError
from stallward.actuator.kernel.files import write_text
from stallward.actuator.kernel.memory.oom_control import oom_control
from stallward.actuator.levers.base import held_setting
from stallward.actuator.levers.base.held_setting import HeldSetting, LimitFile
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.cgroup import oom_wait
from stallward.actuator.levers.cgroup.memory_limit import LimitSpec, LimitWriter
from stallward.actuator.levers.cgroup.oom_wait import OomAlarms, OomWait
from stallward.agent.desired import MIB

NO_LIMIT = "9223372036854771712"
USES = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(LimitFile):
    """A limit, and how much of its memory the group wants all the time."""

    usage: Path
    wants: int
    limits: list[int] = field(default_factory=list)

    def write(self, value: str) -> None:
        self.limits.append(int(value))
        self.usage.write_text(str(min(int(value), max(self.wants, MIB))))
        write_text(self.path, value)


class Waiting(OomWait):
    """A group that the kernel lets wait."""

    def begin(self, user: str) -> None:
        """Nothing to write."""


def _writer(folder: Path, wants: int, cls: type[OomWait] = OomWait) -> tuple[LimitWriter, Group]:
    limit, usage = folder / "limit", folder / "usage"
    limit.write_text(NO_LIMIT)
    usage.write_text(str(USES))
    setting = Group(path=limit, usage=usage, wants=wants, cap=True)
    originals = Originals(lambda *_: None)
    # There is no memory.oom_control in this folder.
    wait = cls(0, folder, originals, OomAlarms(1))
    spec = LimitSpec(
        name="limit:bg",
        setting=setting,
        usage=usage,
        value_of=lambda granted: granted.slot(0).limit_bytes,
        wait=wait,
    )
    return LimitWriter(spec, HeldSetting(setting, originals), threading.Lock()), setting


def test_a_limit_goes_down_by_small_steps_while_the_group_stays_below(tmp_path: Path) -> None:
    writer, group = _writer(tmp_path, wants=20 * MIB)
    assert writer.write(30 * MIB, lambda: False)
    assert group.limits == [60 * MIB, 30 * MIB]
    assert writer.in_force == 30 * MIB


def test_a_step_that_the_group_misses_is_taken_back(tmp_path: Path) -> None:
    writer, group = _writer(tmp_path, wants=USES)
    with pytest.raises(LeverError, match="needs more than 62914560 bytes"):
        writer.write(30 * MIB, lambda: False)
    assert group.limits == [60 * MIB]
    assert group.path.read_text() == NO_LIMIT
    assert writer.in_force is None


def test_a_group_that_grows_up_to_a_careful_limit_is_near_a_kill(tmp_path: Path) -> None:
    writer, group = _writer(tmp_path, wants=20 * MIB)
    assert writer.write(30 * MIB, lambda: False)
    assert not writer.near_a_kill()
    group.usage.write_text(str(30 * MIB))
    assert writer.near_a_kill()
    assert writer.write(None, lambda: False)
    assert not writer.near_a_kill()


def test_a_limit_that_the_group_has_itself_is_left_to_the_kernel(tmp_path: Path) -> None:
    writer, group = _writer(tmp_path, wants=20 * MIB, cls=Waiting)
    group.path.write_text(str(48 * MIB))
    assert writer.write(64 * MIB, lambda: False)
    assert group.limits == []
    assert writer.in_force == 48 * MIB


def test_a_higher_limit_needs_no_care(tmp_path: Path) -> None:
    writer, group = _writer(tmp_path, wants=USES)
    assert writer.write(80 * MIB, lambda: False)
    assert group.limits == [80 * MIB]


def test_a_group_that_waits_is_limited_at_once(tmp_path: Path) -> None:
    writer, group = _writer(tmp_path, wants=USES, cls=Waiting)
    assert writer.write(30 * MIB, lambda: False)
    assert group.limits == [30 * MIB]


def test_a_group_that_cannot_be_made_to_wait_says_so(tmp_path: Path) -> None:
    wait = OomWait(0, tmp_path, Originals(lambda *_: None), OomAlarms(1))
    assert "memory.oom_control" in wait.why_not
    assert OomWait(0, tmp_path / "later", Originals(lambda *_: None), OomAlarms(1)).why_not == ""


class Alarms(OomAlarms):
    """Alarms of a kernel that reports none."""

    def watch(self, slot: int, folder: Path) -> None:
        """Nothing to listen on."""


@pytest.mark.parametrize("waits", [False, True])
def test_one_look_tells_whether_the_group_still_waits_and_whether_a_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    file, looks = tmp_path / "memory.oom_control", 0

    def show(path: Path, value: str) -> None:
        path.write_text(f"oom_kill_disable {value}\nunder_oom {int(waits)}\n")

    def look(path: Path) -> dict[str, str]:
        nonlocal looks
        looks += 1
        return oom_control(path)

    show(file, "0")
    monkeypatch.setattr(held_setting, "write_text", show)
    monkeypatch.setattr(oom_wait, "oom_control", look)
    alarms = Alarms(1)
    wait = OomWait(0, tmp_path, Originals(lambda *_: None), alarms)
    wait.begin("limit:bg")
    looks = 0
    wait.check()
    assert looks == 1
    assert alarms.take() == (int(waits),)
    file.unlink()
    wait.check()
    assert not wait.held
    assert alarms.take() == (int(waits),)
    alarms.close()
