"""Tests of the daemon's configuration: reading, writing, and messages about mistakes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml, load_config, parse_config
from stallward.actuator.config.tables import (
    ExperimentsConfig,
    JournalConfig,
    NodeConfig,
    PolicyConfig,
    ProtectedConfig,
    RecordConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.errors import ConfigError
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.latency.config import LinesLatency, StatsdLatency

_NOT_NUL = st.characters(exclude_characters="\0\b\f\x1b", exclude_categories=["Cs"])
MINIMAL = """
[node]
zone = "stallward/1"
[protected]
group = "stallward/1/app"
[[background]]
name = "hog0"
group = "stallward/1/hog0"
[service]
socket = "/run/stallward.sock"
[journal]
path = "/var/lib/stallward/journal"
"""


def test_the_minimal_file_gets_the_defaults() -> None:
    config = parse_config(MINIMAL)
    assert config.guard == Budgets()
    assert config.control.controller == "partition"
    assert config.control.tick_period_s == 0.1
    assert config.record is None
    assert config.background == (SlotConfig(name="hog0", group="stallward/1/hog0"),)


def test_the_roots_are_this_machine_s_unless_others_are_named(tmp_path: Path) -> None:
    assert parse_config(MINIMAL).node.paths == Paths()
    own = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cgroup", sys=tmp_path / "sys")
    config = replace(parse_config(MINIMAL), node=NodeConfig.at(own, zone="stallward/1"))
    assert parse_config(config_toml(config)).node.paths == own


def test_a_rule_replaces_a_controller_that_fails_unless_it_only_watches() -> None:
    for text, name in (
        ("", "partition"),
        ('controller = "none"', "none"),
        ('controller = "ppo"', "partition"),
        ('controller = "pi"\ndefault_controller = "none"', "none"),
        ('default_controller = "latd"', "latd"),
        ('controller = "none"\ndefault_controller = "latd"', "none"),
    ):
        control = parse_config(f"{MINIMAL}\n[control]\n{text}\n").control
        assert control.fallback_controller == name


def _full(text: str, number: float) -> DaemonConfig:
    return DaemonConfig(
        node=NodeConfig(zone="z", proc=Path("/p"), cgroup=Path("/c")),
        protected=ProtectedConfig(
            group="z/app", demand_bytes=5, hard_protection=True, groups=("z/db",), pids=(7, 9)
        ),
        background=(
            SlotConfig(name="a", group="z/a", floor_bytes=1 << 20),
            SlotConfig(name="b", group="z/b"),
            SlotConfig(name="c", processes=ProcessesConfig(pids=(8, 12))),
            SlotConfig(name="d", processes=ProcessesConfig(command=f"x{re.escape(text)}")),
        ),
        service=ServiceConfig(socket=Path("/s")),
        journal=JournalConfig(path=Path("/j")),
        latency=LinesLatency(path=Path("/l"), pattern=text, latency_unit_s=number, latency="0"),
        guard=Budgets(lift_budgets=True, allow_terminate=True, max_pause_share=0.25),
        record=RecordConfig(dir=Path("/r")),
        policy=PolicyConfig(dir=Path("/q"), store=Path("/s"), canary_s=5.0, canary_margin=0.5),
        experiments=ExperimentsConfig(dir=Path("/e")),
    )


@given(text=st.text(_NOT_NUL), number=st.floats(allow_nan=False, allow_infinity=False))
def test_a_written_configuration_is_read_back(text: str, number: float) -> None:
    config = _full(text, number)
    assert parse_config(config_toml(config)) == config


def test_a_file_is_named_in_its_errors(tmp_path: Path) -> None:
    path = tmp_path / "stallward.toml"
    path.write_text("[node")
    with pytest.raises(ConfigError, match=r"stallward\.toml is not TOML"):
        load_config(path)
    with pytest.raises(ConfigError, match=r"cannot be read: .*No such file"):
        load_config(tmp_path / "other.toml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("zone =", "zonne =", r"config\.node has an unknown key 'zonne'. Did you mean 'zone'\?"),
        ("[journal]", "[journl]", r"unknown key 'journl'. Did you mean 'journal'\?"),
        ('name = "hog0"', "", r"config\.background\[0\]\.name is missing"),
        ('zone = "stallward/1"', "zone = 3", r"config\.node\.zone is 3, not a string"),
        ("[node]", '[node]\npage_cache = "yes"', r"page_cache is 'yes'.*off, auto, ebpf"),
        ("[node]", "[guard]\nmax_pause_s = true\n[node]", "is True, not a number"),
        ("[node]", "[guard]\nmax_pause_s = nan\n[node]", "is nan, not a finite number"),
        ("[node]", "[guard]\nmax_pause_s = -1\n[node]", r"is -1, outside 0\.1\.\.3600"),
        ("[node]", "[guard]\nmax_hold_without_pressure_share = 1.5\n[node]", r"outside 0\.\.1"),
        ("[node]", "[guard]\npressure_lasts_s = -1\n[node]", r"is -1, outside 0\.\.86400"),
        ("[node]", "[guard]\nlate_allowance_s = -1\n[node]", "late_allowance_s is -1"),
        ("[protected]", "[protected]\ndemand_bytes = -1", "protected.demand_bytes is -1"),
        ("[node]", "[policy]\ncanary_margin = 2\n[node]", r"canary_margin is 2, outside 0\.\.1"),
        ("[node]", "[guard]\nmin_cpu_cores = 0\n[node]", "min_cpu_cores is 0"),
        ("[node]", "[guard]\nstale_s = 0\n[node]", "stale_s is 0"),
        ("[node]", "[guard]\nlift_budgets = 1\n[node]", "is 1, not true or false"),
        ("[node]", "[control]\nseed = 1.5\n[node]", r"is 1\.5, not a whole number"),
        ("[node]", "[control]\ntick_period_s = 0.001\n[node]", "tick_period_s is 0.001"),
        ('"stallward/1/hog0"', '"stallward/1/app"', "overlap"),
        ('"stallward/1/hog0"', '"stallward/1/app/sub"', "overlap"),
        ('"stallward/1/hog0"', '"stallward/1"', "not below the zone"),
        ('"stallward/1/hog0"', '"elsewhere/hog0"', "not below the zone"),
        ('"stallward/1/hog0"', '"stallward/../1/x"', "is not a cgroup name"),
        ('"stallward/1/app"', '"/"', "whole machine"),
        ('name = "hog0"', 'name = "hog 0"', r"background\[0\]\.name is 'hog 0'"),
        ('"/run/stallward.sock"', '"run/stallward.sock"', "a relative path"),
        ('"/run/stallward.sock"', f'"/{"x" * 120}"', "121 bytes long"),
        ("[node]", '[node]\nsys = "sys"', "node.sys is 'sys', a relative path"),
        ("[node]", "background = 3\n[node]", "not TOML|not a list|redefine|overwrite"),
        ('group = "stallward/1/app"', 'group = "stallward/1/app"\npids = [0]', r"pids\[0\] is 0"),
    ],
)
def test_a_mistake_is_refused_and_explained(old: str, new: str, message: str) -> None:
    assert old in MINIMAL
    with pytest.raises(ConfigError, match=message):
        parse_config(MINIMAL.replace(old, new, 1))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('report_socket = "r.sock"', r"service\.report_socket is 'r\.sock', a relative path"),
        (f'report_socket = "/{"x" * 120}"', r"report_socket is 121 bytes long"),
        ('report_socket = "/run/stallward.sock"', "like another socket"),
        ('report_socket = "/run/m"\nmetrics = "/run/m"', "like another socket"),
        ('metrics = "/run/stallward.sock"', "service.metrics is .* like another socket"),
        ('metrics = "/run/./x/../stallward.sock"', "service.metrics is .* like another socket"),
        ('report_socket = "/run/r"\nreport_mode = 660', "report_mode is 0o1224, not a mode"),
        ('report_socket = "/run/r"\nreport_mode = 0o060', "report_mode is 0o60, not a mode"),
        ('report_socket = "/run/r"\nreport_mode = 0o755', "report_mode is 0o755, not a mode"),
        ('report_group = "app"', "report_group goes with report_socket only"),
    ],
)
def test_a_mistake_in_a_socket_is_refused(more: str, message: str) -> None:
    socket = 'socket = "/run/stallward.sock"'
    with pytest.raises(ConfigError, match=message):
        parse_config(MINIMAL.replace(socket, f"{socket}\n{more}", 1))


@pytest.mark.parametrize("listen", ["/run/stallward.sock", "/run/x/../stallward.sock"])
def test_datagrams_are_not_received_at_the_socket_of_the_service(listen: str) -> None:
    latency = f'[latency]\nsource = "statsd"\nmetric = "m"\nlisten = "{listen}"\n'
    with pytest.raises(ConfigError, match=r"config\.latency\.listen is .* like another socket"):
        parse_config(f"{MINIMAL}\n{latency}")


def test_the_socket_for_reports_has_a_group_and_a_mode() -> None:
    more = 'report_socket = "/run/r"\nreport_group = "app"\nreport_mode = 0o666'
    service = parse_config(MINIMAL.replace("[journal]", f"{more}\n[journal]", 1)).service
    assert service.report_socket == Path("/run/r")
    assert (service.report_group, service.report_mode) == ("app", 0o666)


REMOTE = """
[remote]
address = "0.0.0.0:7443"
certificate = "/etc/stallward/node.pem"
key = "/etc/stallward/node.key"
client_ca = "/etc/stallward/clients.pem"
operators = ["ops.example"]
"""


def test_other_machines_reach_the_daemon_by_mutual_tls() -> None:
    remote = parse_config(MINIMAL + REMOTE).remote
    assert remote is not None
    assert (remote.listening.host, remote.listening.port) == ("0.0.0.0", 7443)
    assert remote.operators == ("ops.example",)
    assert parse_config(MINIMAL).remote is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('certificate = "/etc/stallward/node.pem"\n', "", r"remote\.certificate is missing"),
        ('key = "/etc/stallward/node.key"\n', "", r"remote\.key is missing"),
        ('client_ca = "/etc/stallward/clients.pem"\n', "", r"remote\.client_ca is missing"),
        ("/etc/stallward/node.key", "node.key", r"remote\.key is 'node\.key', a relative path"),
        ("0.0.0.0:7443", "everywhere", r"remote\.address is 'everywhere', not an address"),
        ("0.0.0.0:7443", "/run/s.sock", r"remote\.address is '/run/s\.sock', a path"),
        ("ops.example", "", r"remote\.operators\[0\] is empty"),
        ("[remote]\n", '[remote]\nnetworks = ["10.0.0.1/8"]\n', r"remote\.networks\[0\] is"),
    ],
)
def test_without_mutual_tls_there_is_no_port_for_others(old: str, new: str, message: str) -> None:
    assert old in REMOTE
    with pytest.raises(ConfigError, match=message):
        parse_config(MINIMAL + REMOTE.replace(old, new, 1))


BY_PROCESSES = """
[protected]
processes = { pidfile = "/run/app.pid" }
[[background]]
name = "batch"
processes = { command = "^/usr/bin/batch ", user = "batch" }
[service]
socket = "/run/stallward.sock"
[journal]
path = "/var/lib/stallward/journal"
"""


def test_processes_may_stand_for_groups() -> None:
    config = parse_config(BY_PROCESSES)
    assert config.node.zone == "/"
    assert config.applications[0].group is None
    assert config.applications[0].processes == ProcessesConfig(pidfile=Path("/run/app.pid"))
    assert config.background[0].processes == ProcessesConfig(
        command="^/usr/bin/batch ", user="batch"
    )
    assert parse_config(config_toml(config)) == config


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[protected]",
            '[protected]\ngroup = "app"',
            "protected names group and processes",
        ),
        (
            'name = "batch"',
            'name = "batch"\ngroup = "b"',
            r"background\[0\] names group and processes",
        ),
        ('processes = { pidfile = "/run/app.pid" }', "", "protected names neither"),
        ('"/run/app.pid"', '"/run/app.pid", pids = [7]', "says pidfile and pids"),
        ('{ pidfile = "/run/app.pid" }', "{}", r"says nothing.*exactly one of pidfile, pids"),
        ('"/run/app.pid"', '"app.pid"', r"pidfile is 'app\.pid', a relative path"),
        ('pidfile = "/run/app.pid"', "pids = [1]", r"pids\[0\] is 1, outside 2\.\."),
        ('"/run/app.pid"', '"/run/app.pid", user = "me"', "user goes with command only"),
        ('user = "batch"', 'user = " "', "user is empty"),
        ("^/usr/bin/batch ", "batch(", r"command is 'batch\(', not a regular expression"),
        (
            "^/usr/bin/batch ",
            "(?=b)a",
            r"RE2: invalid perl operator: \(\?=\. RE2 has neither look",
        ),
        ("^/usr/bin/batch ", ".*", r"'\.\*', which every process matches"),
        ("command", "comand", "unknown key 'comand'. Did you mean 'command'"),
    ],
)
def test_processes_are_said_in_exactly_one_way(old: str, new: str, message: str) -> None:
    assert old in BY_PROCESSES
    with pytest.raises(ConfigError, match=re.compile(message, re.DOTALL)):
        parse_config(BY_PROCESSES.replace(old, new, 1))


def test_two_slots_may_not_share_a_group_or_name() -> None:
    config = parse_config(MINIMAL)
    twice = (config.background[0], replace(config.background[0], name="hog1"))
    with pytest.raises(ConfigError, match="overlap"):
        replace(config, background=twice)
    named = (config.background[0], replace(config.background[0], group="stallward/1/hog1"))
    with pytest.raises(ConfigError, match=r"background\[1\]\.name"):
        replace(config, background=named)


@pytest.mark.parametrize(("number", "known"), [(1 << 24, True), ((1 << 24) - 1, False)])
def test_a_record_has_room_for_some_minutes(number: int, known: bool) -> None:
    text = f'{MINIMAL}[record]\ndir = "/r"\nmax_bytes = {number}\n'
    if known:
        assert parse_config(text).record == RecordConfig(dir=Path("/r"), max_bytes=number)
    else:
        with pytest.raises(ConfigError, match=r"record\.max_bytes is 1\.67772e\+07, outside"):
            parse_config(text)


ESCAPED = r"stallward/1/dev-disk-by\x2dlabel.service"


def test_a_configuration_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "daemon.toml"
    path.write_text(MINIMAL, encoding="utf-8-sig")
    assert load_config(path) == parse_config(MINIMAL)
    path.write_bytes(MINIMAL.replace("\n", "\r\n").encode("utf-8-sig"))
    assert load_config(path) == parse_config(MINIMAL)


@pytest.mark.parametrize(
    ("content", "cause", "step"),
    [
        (MINIMAL.encode("utf-16"), "it is UTF-16 text", "Save it as UTF-8"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer", "git lfs pull"),
        (b"# Gr\xf6\xdfe\n", "line 1 holds the byte 0xf6", "save it as UTF-8"),
    ],
)
def test_a_configuration_of_another_kind_is_named(
    tmp_path: Path, content: bytes, cause: str, step: str
) -> None:
    path = tmp_path / "daemon.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(path) in caught.value.cause
    assert cause in caught.value.cause
    assert step in str(caught.value)


def test_a_group_pasted_from_systemd_is_found_when_it_is_in_single_quotes(tmp_path: Path) -> None:
    double = MINIMAL.replace("stallward/1/hog0", ESCAPED)
    with pytest.raises(ConfigError, match=r"line 8 a backslash begins an escape.*single quotes"):
        parse_config(double)
    config = parse_config(double.replace(f'"{ESCAPED}"', f"'{ESCAPED}'"))
    assert parse_config(config_toml(config)) == config
    name = config.background[0].group
    assert name == ESCAPED
    (tmp_path / "stallward/1" / r"dev-disk-by\x2dlabel.service").mkdir(parents=True)
    group = Hierarchy(kind="v2", memory_root=tmp_path, unified_root=tmp_path).group(name)
    assert group.exists()
    assert not Hierarchy(unified_root=tmp_path).group(name.replace(r"\x2d", "-")).exists()


SEVERAL = """
[node]
zone = "/"
[control]
slo_ms = 50
[[protected]]
name = "db"
group = "db.slice"
slo_ms = 10
latency = { source = "lines", path = "/run/db.lines", latency = "0" }
[[protected]]
name = "web"
processes = { pidfile = "/run/web.pid" }
demand_bytes = 7
[protected.latency]
source = "statsd"
metric = "web.request"
[[background]]
name = "batch"
group = "batch.slice"
"""


def test_several_applications_have_names_targets_and_sources_of_their_own() -> None:
    config = parse_config(SEVERAL)
    db, web = config.applications
    assert (db.name, db.group, web.name, web.demand_bytes) == ("db", "db.slice", "web", 7)
    assert config.targets_ms == (10.0, 50.0), "by default the node's"
    assert [type(one) for one in config.latencies] == [LinesLatency, StatsdLatency]
    assert parse_config(config_toml(config)) == config, "the daemon's processes read it like that"


def test_one_application_has_the_same_face() -> None:
    config = parse_config(MINIMAL)
    assert config.applications == (config.protected,)
    assert config.latencies == (None,)
    assert config.targets_ms == (100.0,)
    alone = parse_config(MINIMAL.replace("[protected]", "[[protected]]"))
    assert alone.applications == config.applications


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('name = "web"', 'name = "db"', r"protected\[1\]\.name is 'db'"),
        ('name = "db"\n', 'name = "d b"\n', r"protected\[0\]\.name is 'd b'"),
        ('group = "db.slice"', 'group = ""', "whole machine"),
        (
            'processes = { pidfile = "/run/web.pid" }',
            'group = "db.slice/in"',
            r"protected\[1\]\.group \('db\.slice/in'\) and config\.protected\[0\]\.group overlap",
        ),
        (
            'source = "statsd"\nmetric = "web.request"',
            'source = "prometheus"\nmetric = "t_seconds"\nport = 9',
            r"protected\[1\]\.latency\.port is of a pod",
        ),
        ("slo_ms = 10", "slo_ms = 0.0", r"protected\[0\]\.slo_ms is 0"),
        ("slo_ms = 10", "slow_ms = 10", r"protected\[0\] has an unknown key 'slow_ms'"),
        ("[control]", '[latency]\nsource = "grpc"\n[control]', "config.latency is of one"),
        ('group = "batch.slice"', 'group = "db.slice/b"', r"protected\[0\]\.group overlap"),
    ],
)
def test_mistakes_about_several_applications_are_named(
    before: str, after: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_config(SEVERAL.replace(before, after, 1))
    assert caught.value.next_step or "whole machine" in message or "slo_ms is 0" in message


def test_two_applications_cannot_share_a_source() -> None:
    both = SEVERAL.replace(
        'source = "statsd"\nmetric = "web.request"',
        'source = "lines"\npath = "/run/db.lines"\nlatency = "0"',
    )
    with pytest.raises(ConfigError, match=r"protected\[1\]\.latency and config\.protected\[0\]"):
        parse_config(both)


def test_what_is_of_several_applications_is_refused_of_one() -> None:
    table = "[protected]\nslo_ms = 5\n"
    with pytest.raises(ConfigError, match=r"slo_ms is for several") as caught:
        parse_config(MINIMAL.replace("[protected]\n", table))
    assert "control.slo_ms" in caught.value.next_step


ALIKE = [
    pytest.param(
        'processes = { pids = [7] }\nname = "db"',
        'processes = { pids = [8] }\nname = "db"',
        r"protected\[0\]\.name and config\.background\[0\]\.name are both 'db'",
        id="two trees",
    ),
    pytest.param(
        'pod = { selector = "app=db" }\nname = "db"',
        'pod = { selector = "app=batch" }\nname = "db"',
        r"protected\[0\]\.name and config\.background\[0\]\.name are both 'db'",
        id="two pods",
    ),
    pytest.param(
        'group = "batch"\nname = "db"',
        'processes = { pids = [8] }\nname = "batch"',
        r"protected\[0\]\.group and config\.background\[0\]\.name are both 'batch'",
        id="a tree and a group",
    ),
    pytest.param(
        'group = "db.slice"\nname = "batch"', 'group = "y/batch"\nname = "batch"', "", id="groups"
    ),
    pytest.param(
        'group = "x/batch"\nname = "db"',
        'processes = { pids = [8] }\nname = "batch"',
        "",
        id="a group that ends so is called by more",
    ),
]


@pytest.mark.parametrize(("application", "slot", "said"), ALIKE)
def test_an_application_and_a_slot_cannot_be_called_the_same(
    application: str, slot: str, said: str
) -> None:
    text = (
        f'[[protected]]\n{application}\n[[protected]]\nname = "web"\ngroup = "web.slice"\n'
        f'[[background]]\n{slot}\n[kubernetes]\nnode = "n"\n'
    )
    if not said:
        parse_config(text)
        return
    with pytest.raises(ConfigError, match=said) as caught:
        parse_config(text)
    assert caught.value.next_step == "Give one of them another name."
