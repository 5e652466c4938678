"""The ``work`` table of a slot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stallward.actuator.config.load import config_toml, parse_config
from stallward.actuator.config.reload import check_reload
from stallward.actuator.errors import ConfigError
from stallward.actuator.work.config import (
    CommandWork,
    CpuWork,
    FileWork,
    PrometheusWork,
    SlotWork,
    WorkConfig,
    unit_of,
)

BASE = """
protected.group = "app"
service.socket = "/run/s.sock"
journal.path = "/run/journal"
[[background]]
name = "build"
group = "build"
"""


@pytest.mark.parametrize(
    ("table", "work"),
    [
        ("", CpuWork()),
        ('work.source = "cpu"', CpuWork()),
        (
            'work = {source = "file", path = "/run/n", name = "done", unit = "images"}',
            FileWork(path=Path("/run/n"), name="done", unit="images"),
        ),
        (
            'work = {source = "prometheus", url = "http://127.0.0.1:1/m", metric = "done_total"}',
            PrometheusWork(url="http://127.0.0.1:1/m", metric="done_total"),
        ),
        (
            'work = {source = "command", command = ["/bin/n", "-q"], period_s = 2.0}',
            CommandWork(command=("/bin/n", "-q"), period_s=2.0),
        ),
    ],
)
def test_every_source_is_read_and_written(table: str, work: WorkConfig) -> None:
    config = parse_config(BASE + table)
    assert config.background[0].work == work
    assert parse_config(config_toml(config)) == config
    read = () if isinstance(work, CpuWork) else (SlotWork(slot=0, work=work),)
    assert config.read_work == read
    assert unit_of(work) == ("images" if "images" in table else "units" if read else "cpu-s")


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ('{source = "sql"}', "source"),
        ('{source = "file"}', "path is missing"),
        ('{source = "cpu", path = "/n"}', "path"),
        ('{source = "file", path = "n"}', "relative"),
        ('{source = "file", path = "/n", name = "two words"}', "one word"),
        ('{source = "file", path = "/n", period_s = 0.0}', "period_s is 0, outside"),
        ('{source = "file", path = "/n", unit = "cpu-s"}', "unit"),
        ('{source = "file", path = "/n", unit = "a b"}', "unit"),
        ('{source = "prometheus", url = "https://127.0.0.1/", metric = "x"}', "url"),
        ('{source = "prometheus", url = "http://10.0.0.7/", metric = "x"}', "not on this machine"),
        ('{source = "prometheus", url = "http://127.0.0.1/", metric = "{"}', "metric"),
        ('{source = "command", command = []}', "whole path"),
        ('{source = "command", command = ["n"]}', "whole path"),
        ('{source = "command", command = ["/n"], timeout_s = 1000.0}', "timeout_s"),
    ],
)
def test_what_cannot_be_used_is_refused_and_the_key_named(table: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"{BASE}work = {table}\n")
    assert "background[0].work" in str(caught.value)
    assert named in str(caught.value)


def test_another_source_takes_a_restart() -> None:
    running = parse_config(BASE)
    wanted = parse_config(f'{BASE}work = {{source = "file", path = "/n"}}\n')
    with pytest.raises(ConfigError, match="background has changed, which takes a restart"):
        check_reload(running, wanted)
    with_source = replace(wanted, guard=replace(wanted.guard, max_pause_s=2.0))
    check_reload(wanted, with_source)
