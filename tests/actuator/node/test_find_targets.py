"""The groups that a daemon acts on must be writable, and no others."""

from __future__ import annotations

import os
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
from stallward.actuator.errors import NodeError
from stallward.actuator.levers.lever_set import LeverSet
from stallward.actuator.node import find_targets as found


@pytest.fixture
def config(tmp_path: Path) -> DaemonConfig:
    """A node with cgroup v2, whose zone holds an application and a background group."""
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    for name in ("edge/app", "edge/hog"):
        (root / name).mkdir(parents=True)
    (root / "cgroup.controllers").write_text("memory\n")
    (proc / "self").mkdir(parents=True)
    (proc / "self/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    return DaemonConfig(
        node=NodeConfig(zone="edge", cgroup=root, proc=proc),
        protected=ProtectedConfig(group="edge/app"),
        background=(SlotConfig(name="hog", group="edge/hog"),),
        service=ServiceConfig(socket=tmp_path / "socket"),
        journal=JournalConfig(path=tmp_path / "journal"),
    )


def make_read_only(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Let the kernel say that folders, but nothing below them, cannot be written."""
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) not in folders)


def test_a_daemon_may_be_kept_from_all_groups_but_its_own(
    config: DaemonConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_read_only(monkeypatch, config.node.cgroup, config.node.cgroup / "edge")
    targets = found.find_targets(config)
    assert [slot.name for slot in targets.slots] == ["edge/hog"]


@pytest.mark.parametrize("name", ["edge/app", "edge/hog"])
def test_a_group_that_cannot_be_changed_is_refused_by_name(
    config: DaemonConfig, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make_read_only(monkeypatch, config.node.cgroup / name)
    with pytest.raises(NodeError, match=f"{name}' cannot be used: .* is not writable"):
        found.find_targets(config)


def test_levers_of_groups_that_end_alike_have_names_of_their_own(config: DaemonConfig) -> None:
    names = ("edge/a/db", "edge/b/db", "edge/c/db", "edge/hog")
    for name in names:
        (config.node.cgroup / name).mkdir(parents=True, exist_ok=True)
    first, second, *slots = names
    two = (
        ProtectedConfig(name="first", group=first),
        ProtectedConfig(name="second", group=second),
    )
    background = tuple(SlotConfig(name=f"slot{i}", group=name) for i, name in enumerate(slots))
    targets = found.find_targets(replace(config, protected=two, background=background))
    called = [one.short_name for one in (*targets.applications, *targets.slots)]
    assert called == ["a/db", "b/db", "c/db", "hog"]
    levers = LeverSet(
        paths=config.node.paths,
        hierarchy=targets.hierarchy,
        zone=targets.zone,
        applications=targets.applications,
        slots=targets.slots,
        zone_limit_bytes=None,
        send_journal=lambda *_: None,
    )
    every = [name for name, _ in levers.survey()]
    levers.close()
    assert len(every) == len(set(every))
    assert {"memory_low:a/db", "memory_low:b/db", "limit:c/db", "limit:hog"} <= set(every)
