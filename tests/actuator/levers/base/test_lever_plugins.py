"""Levers of other packages: only those that are named are imported, and only believed files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from stallward.actuator.errors import LeverError
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.base import plugin
from stallward.actuator.levers.base.plugin import (
    KNOWN,
    LEVER_GROUP,
    LeverEntry,
    LeverSite,
    installed_levers,
    lacks_of_levers,
    levers_of,
    load_levers,
)
from stallward.actuator.levers.lever_set import LeverOptions, LeverSet
from stallward.agent.controller import Need
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.errors import UnbelievedFileError
from stallward.agent.file_pages import FilePages

PACKAGE = """
from stallward.actuator.levers.base.lever import LeverDefaults
from stallward.actuator.levers.base.plugin import LeverEntry


class Bell(LeverDefaults):
    name = "bell"
    held = False

    def __init__(self, site):
        self.site = site

    def apply(self, granted, now_s):
        return ()

    def restore(self, now_s):
        return ()


BELL = LeverEntry(name="bell", make=Bell, lacks=lambda proc: {})
"""
WANTS_PAGES = DesiredState(file_pages=FilePages(action="clear", victim="largest-file"))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module with a lever, and entry points of all kinds."""
    found = {
        "bell": "ringing:BELL",
        "gong": "ringing:BELL",
        "lost": "no_such_module:BELL",
    }
    path = tmp_path / "ringing.py"
    path.write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        plugin,
        "installed_points",
        lambda _group: {
            name: EntryPoint(name=name, value=value, group=LEVER_GROUP)
            for name, value in found.items()
        },
    )
    yield path
    sys.modules.pop("ringing", None)


def lever_set(tmp_path: Path, *plugins: LeverEntry) -> LeverSet:
    hierarchy = Hierarchy(kind="v2", memory_root=tmp_path, unified_root=tmp_path)
    zone = hierarchy.group("zone")
    paths = Paths(proc=tmp_path, cgroup=tmp_path, sys=tmp_path)
    options = LeverOptions(plugins=plugins)
    slots = (zone.child("bg"),)
    return LeverSet(
        paths, hierarchy, zone, (zone.child("app"),), slots, None, print, options=options
    )


def test_what_is_not_named_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        plugin, "installed_points", lambda _group: pytest.fail("the entry points are read")
    )
    assert levers_of("partition") == levers_of("static:pause=all") == ()


@pytest.mark.usefixtures("module")
def test_a_lever_that_is_named_acts_on_the_node(tmp_path: Path) -> None:
    loaded = levers_of("partition", ["bell", "bell"])
    assert [entry.name for entry in loaded] == ["bell"]
    levers = lever_set(tmp_path, *loaded)
    (bell,) = [lever for lever in levers._every if lever.name == "bell"]
    site = bell.site  # type: ignore[attr-defined]
    assert isinstance(site, LeverSite)
    assert len(site.slots) == 1
    assert site.proc == tmp_path
    assert levers.plugins == loaded


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lost", r"The lever 'lost' \(no_such_module:BELL\) cannot be imported: .* Install what"),
        ("gong", r"'gong' \(ringing:BELL\) is no LeverEntry of that name\. Give both the same"),
        ("file_pages", r"'file_pages' is not installed\. Run `pip install 'stallward\[papers\]'`"),
        ("hush", r"'hush' is not installed\. Choose one of: bell, file_pages, gong, lost"),
    ],
)
def test_a_lever_that_cannot_be_loaded_is_refused_with_the_reason(name: str, message: str) -> None:
    with pytest.raises(LeverError, match=message):
        load_levers([name])


def test_root_imports_nothing_that_others_can_write(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    module.chmod(0o666)
    with pytest.raises(UnbelievedFileError, match="others may have written it"):
        load_levers(["bell"])
    assert "ringing" not in sys.modules
    module.chmod(0o644)
    assert [entry.name for entry in load_levers(["bell"])] == ["bell"]


def test_what_is_wanted_of_a_lever_that_is_not_loaded_is_an_error(tmp_path: Path) -> None:
    levers = lever_set(tmp_path)
    (result,) = [one for one in levers.apply(WANTS_PAGES) if one.lever == "file_pages"]
    assert not result.ok
    assert result.error == "it is not loaded; name it in control.levers, with stallward[papers]"
    assert not [one for one in levers.apply(WANTS_PAGES) if one.lever == "file_pages"], "once"
    assert not [one for one in levers.apply(RELEASED) if one.lever == "file_pages"]


@pytest.mark.usefixtures("module")
def test_the_needs_of_a_lever_that_is_not_loaded_are_lacking(tmp_path: Path) -> None:
    assert installed_levers() == ()
    lacks = lacks_of_levers((), tmp_path)
    assert lacks.keys() == {need for known in KNOWN.values() for need in known.needs}
    assert lacks[Need.FILE_ADVICE].startswith("file_pages: it is not loaded; name it in control.")
    entry = LeverEntry(
        name="file_pages",
        make=lambda _site: pytest.fail("it is made"),
        lacks=lambda _proc: {Need.FILE_CACHE: "no cachestat"},
    )
    assert lacks_of_levers((entry,), tmp_path) == {Need.FILE_CACHE: "file_pages: no cachestat"}
