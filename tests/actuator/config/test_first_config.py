"""The configuration that a node begins with is one that the daemon takes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from stallward.actuator.config.first_config import ChosenWorkload, first_config
from stallward.actuator.config.load import parse_config
from stallward.actuator.kernel.process_spec import CommandPattern

MIB = 1 << 20


def group(name: str) -> ChosenWorkload:
    return ChosenWorkload(name=name, is_group=True, memory_bytes=200 * MIB)


def program(name: str) -> ChosenWorkload:
    return ChosenWorkload(name=name, is_group=False, memory_bytes=90 * MIB)


@pytest.mark.parametrize(
    "name",
    [
        "system.slice/nginx.service",
        r"system.slice/dev-disk-by\x2dlabel.service",
        "a group/with 'quotes' and \\",
    ],
)
def test_a_group_is_named_as_it_is(name: str) -> None:
    app = replace(group(name), target_ms=20.0)
    text = first_config([app], [group("batch.slice/backup.service")], acts=False)
    config = parse_config(text)
    assert config.applications[0].group == name
    (slot,) = config.background
    assert (slot.name, slot.group) == ("backup", "batch.slice/backup.service")
    assert config.control.slo_ms == 20
    assert config.control.dry_run
    assert config.record is not None, "stallward assess reads it"
    assert config.node.zone == "/"


def test_programs_in_no_group_are_found_by_their_command() -> None:
    config = parse_config(first_config([program("nginx")], [program("g++")], acts=True))
    assert config.applications[0].processes is not None
    pattern = CommandPattern(config.applications[0].processes.command or "")
    for line in ("nginx: master process /usr/sbin/nginx", "/usr/sbin/nginx -g daemon", "nginx"):
        assert pattern.found_in(line)
    for line in ("/usr/bin/mynginxer", "vi /etc/nginx.conf", "/usr/bin/nginx-exporter"):
        assert not pattern.found_in(line)
    processes = config.background[0].processes
    assert processes is not None
    pattern = CommandPattern(processes.command or "")
    for line in ("/usr/bin/g++ -c a.cc", "g++"):
        assert pattern.found_in(line)
    assert not pattern.found_in("/usr/bin/gcc -c a.cc")
    assert not config.control.dry_run


def test_slots_have_names_of_their_own_and_the_file_is_short() -> None:
    slots = [group(f"{folder}/job.service") for folder in ("a", "b", "c")]
    app = replace(group("app"), log=Path("/var/log/a.log"))
    text = first_config([app], slots, acts=False)
    assert [slot.name for slot in parse_config(text).background] == ["job", "job-2", "job-2-2"]
    assert "# path = '/var/log/a.log'" in text
    short = first_config([app], slots[:2], acts=False)
    assert len(short.splitlines()) <= 25


@pytest.mark.parametrize(
    "name", ["it's", "it's\tat 5\"", "a\n[control]\ndry_run = false", "\x7f'"]
)
def test_whatever_a_program_is_called_the_file_names_it(name: str) -> None:
    text = first_config([program(name)], [program("job")], acts=False)
    config = parse_config(text)
    assert config.applications[0].processes is not None
    assert re.escape(name) in (config.applications[0].processes.command or "")
    assert config.control.dry_run


@pytest.mark.parametrize("acts", [False, True])
def test_several_applications_have_targets_and_names_of_their_own(acts: bool) -> None:
    applications = [
        replace(group("a/app.service"), target_ms=5.0, log=Path("/var/log/a.log")),
        replace(group("b/app.service"), target_ms=50.0),
        program("redis"),
    ]
    text = first_config(applications, [program("job")], acts=acts)
    config = parse_config(text)
    assert [one.name for one in config.applications] == ["app", "app-2", "redis"]
    assert config.targets_ms == (5.0, 50.0, 100.0)
    assert config.control.dry_run is not acts
    log = text.replace("# [protected.latency]", "[protected.latency]").replace(
        "# source = 'lines'\n# path", "source = 'lines'\nlatency = '0'\npath"
    )
    first, second, _ = parse_config(log).latencies
    assert first is not None
    assert second is None


def test_an_application_and_a_slot_that_are_called_alike_get_names_of_their_own() -> None:
    applications = [program("srv-"), program("web")]
    config = parse_config(first_config(applications, [program("srv+")], acts=True))
    assert [one.name for one in config.applications] == ["srv", "web"]
    assert config.background[0].name == "srv-2"
