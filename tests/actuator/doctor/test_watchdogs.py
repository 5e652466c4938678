"""A slot that systemd watches is named where a pause may last too long for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.doctor.watchdogs import parse_span_s, watchdog_of, watchdogs


def unit(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def config(folder: Path, **slot: object) -> DaemonConfig:
    return DaemonConfig(
        protected=ProtectedConfig(group="app"),
        background=(
            SlotConfig(name="job", group="batch.slice/job@3.service", **slot),  # type: ignore[arg-type]
        ),
        service=ServiceConfig(socket=folder / "s.sock"),
        journal=JournalConfig(path=folder / "journal"),
    )


def test_a_watchdog_shorter_than_two_pauses_is_named_with_what_to_write(tmp_path: Path) -> None:
    unit(tmp_path, "usr/lib/systemd/system/job@.service", "[Service]\nWatchdogSec=6\n")
    (found,) = watchdogs(config(tmp_path), tmp_path)
    assert (found.name, found.state) == ("watchdog of job", "degraded")
    assert "does not report for 6 s" in found.why
    assert found.next_step == "Write max_pause_s = 3 under its [[background]]."
    assert list(watchdogs(config(tmp_path, max_pause_s=3.0), tmp_path)) == []
    unit(tmp_path, "etc/systemd/system/job@3.service.d/a.conf", "[Service]\nWatchdogSec=1min\n")
    assert list(watchdogs(config(tmp_path), tmp_path)) == []


def test_units_in_a_slot_that_is_a_slice_are_looked_at(tmp_path: Path) -> None:
    unit(tmp_path, "proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    unit(tmp_path, "cgroup/cgroup.controllers", "memory\n")
    for name, watchdog_s in (("slow", 60), ("quick", 4), ("quicker", 3), ("none", 0)):
        (tmp_path / f"cgroup/batch.slice/batch-x.slice/{name}.service/workers").mkdir(parents=True)
        text = f"[Service]\nWatchdogSec={watchdog_s}\n"
        unit(tmp_path, f"etc/systemd/system/{name}.service", text)
    node = NodeConfig(cgroup=tmp_path / "cgroup", proc=tmp_path / "proc")
    slots = (
        SlotConfig(name="all", group="batch.slice"),
        SlotConfig(name="b", group="other.slice"),
    )
    (found,) = watchdogs(replace(config(tmp_path), node=node, background=slots), tmp_path)
    assert found.name == "watchdog of all"
    assert "systemd ends quicker.service if it does not report for 3 s" in found.why
    assert found.next_step == "Write max_pause_s = 1.5 under its [[background]]."


def test_a_slot_below_the_group_of_a_unit_is_watched_as_the_unit(tmp_path: Path) -> None:
    unit(tmp_path, "etc/systemd/system/job.service", "[Service]\nWatchdogSec=6\n")
    unit(tmp_path, "etc/systemd/system/user@7.service", "[Service]\nWatchdogSec=6\n")
    slots = (
        SlotConfig(name="workers", group="batch.slice/job.service/workers/first"),
        SlotConfig(name="apps", group="user.slice/user@7.service/app.slice/app.scope"),
    )
    (found,) = watchdogs(replace(config(tmp_path), background=slots), tmp_path)
    assert found.name == "watchdog of workers", "a user manager is in no slice of its units"
    assert "systemd ends job.service if it does not report for 6 s" in found.why


def test_files_of_a_unit_count_as_systemd_orders_them(tmp_path: Path) -> None:
    unit(tmp_path, "usr/lib/systemd/system/a.service", "[Service]\nWatchdogSec=9\n")
    unit(
        tmp_path,
        "etc/systemd/system/a.service",
        "[Unit]\nWatchdogSec=1\n[Service]\n#WatchdogSec=2\n",
    )
    assert watchdog_of("a.service", tmp_path) is None, "the file in /etc is in the other's place"
    unit(tmp_path, "usr/lib/systemd/system/a.service.d/20.conf", "[Service]\nWatchdogSec=20\n")
    assert watchdog_of("a.service", tmp_path) == 20.0
    unit(tmp_path, "run/systemd/system/a.service.d/30.conf", "[Service]\nWatchdogSec = 30 \n")
    assert watchdog_of("a.service", tmp_path) == 30.0
    unit(tmp_path, "etc/systemd/system/a.service.d/30.conf", "[Service]\nWatchdogSec=\n")
    assert watchdog_of("a.service", tmp_path) is None, "it has the same name, and unsets it"
    unit(tmp_path, "usr/local/lib/systemd/system/b.service", "[Service]\nWatchdogSec=6\n")
    assert watchdog_of("b.service", tmp_path) == 6.0, "an administrator installed it"
    unit(tmp_path, "usr/lib/systemd/system/b.service", "[Service]\nWatchdogSec=9\n")
    assert watchdog_of("b.service", tmp_path) == 6.0
    unit(tmp_path, "run/systemd/transient/c.service", "[Service]\nWatchdogSec=4000000us\n")
    assert watchdog_of("c.service", tmp_path) == 4.0, "of systemd-run"


@pytest.mark.parametrize(
    ("text", "span_s"),
    [
        ("30", 30.0), ("500ms", 0.5), ("1min 30s", 90.0), ("2 h", 7200.0), ("0", None), ("", None),
        ("infinity", None), ("soon", None), ("3 parsecs", None), ("-1", None),
    ],
)  # fmt: skip
def test_spans_are_read_as_systemd_reads_them(text: str, span_s: float | None) -> None:
    assert parse_span_s(text) == span_s
