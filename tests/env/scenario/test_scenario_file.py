"""Shipped scenario files load; mistakes in a file are named with file, key and next step."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stallward.env.errors import ScenarioError
from stallward.env.scenario.file import (
    find_scenarios,
    load_scenario,
    parse_scenario,
    scenario_from,
    shipped_files,
)
from stallward.env.scenario.scenario import (
    BackgroundSpec,
    Command,
    CompressedSwap,
    DiskLimit,
    Phase,
    UnitLines,
    is_scheduled,
    running_phases,
    states_target,
    workload_of,
)

MIB = 1024 * 1024

GOOD = """
summary = "a server beside a hog"
needs = { sh = "dash" }

[sandbox]
limit_mib = 100
ample_mib = 400

[protected]
ready = "{run}/ready"
prepare = [["touch", "{data}/x"]]
[protected.server]
command = ["server", "--data", "{data}"]
nice = 0
[protected.load]
command = ["load", "--seed", "{seed}"]
cpus = "0-1"
[protected.latency]
path = "{run}/lines"
start = 0
latency = 1
latency_unit = "us"
[protected.slo]
quantile = 0.99
latency_ms = 12.5

[[background]]
name = "hog"
command = ["{workloads}/anon"]
floor_mib = 24
phases = [{ start_s = 1, stop_s = 3 }, { start_s = 5 }]
units = { path = "{run}/hog.lines" }
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_values_arrive_with_their_units(tmp_path: Path) -> None:
    scenario = parse_scenario(write(tmp_path, GOOD))
    assert scenario.name == "mine"
    assert scenario.sandbox.limit_bytes == 100 * MIB
    assert scenario.sandbox.swap_bytes == 2048 * MIB
    assert scenario.protected.slo.latency_ms == 12.5
    assert scenario.protected.latency.latency_unit_s == 1e-6
    assert scenario.protected.load.cpus == "0-1"
    assert scenario.background[0].floor_bytes == 24 * MIB
    assert scenario.background[0].phases == (Phase(start_s=1, stop_s=3), Phase(start_s=5))
    assert scenario.needs[0].package == "dash"


def test_a_sandbox_may_have_no_swap_and_a_slow_disk(tmp_path: Path) -> None:
    plain = parse_scenario(write(tmp_path, GOOD)).sandbox
    assert plain.disk is None
    text = "limit_mib = 100\nswap_mib = 0\ndisk_mib_per_s = 1.5\ndisk_ops_per_s = 200"
    slow = parse_scenario(write(tmp_path, GOOD.replace("limit_mib = 100", text))).sandbox
    assert slow.swap_bytes == 0
    assert slow.disk == DiskLimit(bytes_per_s=3 * MIB // 2, ops_per_s=200)
    text = "limit_mib = 100\ndisk_ops_per_s = 200"
    only_ops = parse_scenario(write(tmp_path, GOOD.replace("limit_mib = 100", text))).sandbox
    assert only_ops.disk == DiskLimit(ops_per_s=200)


def test_a_sandbox_may_compress_its_swap(tmp_path: Path) -> None:
    assert parse_scenario(write(tmp_path, GOOD)).sandbox.compressed_swap is None
    for given, compressor in (("", "lzo"), ('\ncompressor = "zstd"', "zstd")):
        text = f'limit_mib = 100\ncompressed_swap = "zram"{given}'
        swap = parse_scenario(write(tmp_path, GOOD.replace("limit_mib = 100", text))).sandbox
        assert swap.compressed_swap == CompressedSwap(kind="zram", compressor=compressor)


def test_a_file_may_say_only_what_differs_from_a_shipped_scenario(tmp_path: Path) -> None:
    base = load_scenario("redis-sort")
    text = 'based_on = "redis-sort"\nsummary = "mine"\n[sandbox]\nlimit_mib = 333\n'
    mine = parse_scenario(write(tmp_path, text))
    assert (mine.name, mine.summary) == ("mine", "mine")
    assert mine.sandbox == replace(base.sandbox, limit_bytes=333 * MIB)
    assert (mine.protected, mine.background) == (base.protected, base.background)
    assert scenario_from(mine.content, tmp_path / "mine.toml") == mine, "a recording has all of it"


def test_a_file_with_an_application_of_its_own_has_not_that_of_its_base(tmp_path: Path) -> None:
    assert load_scenario("redis-sort").application == "redis"
    assert parse_scenario(write(tmp_path, f'based_on = "redis-sort"\n{GOOD}')).application == ""


@pytest.mark.parametrize("base", ['"redis-sord"', "3", '["redis-sort"]'])
def test_a_file_is_based_on_a_shipped_scenario_only(tmp_path: Path, base: str) -> None:
    with pytest.raises(ScenarioError, match=r"based_on is .* no shipped scenario"):
        parse_scenario(write(tmp_path, f"based_on = {base}\n"))


def test_a_based_file_with_a_mistake_is_refused(tmp_path: Path) -> None:
    for text in ("sandbox = 3", "sand = 3"):
        with pytest.raises(ScenarioError, match="sand"):
            parse_scenario(write(tmp_path, f'based_on = "redis-sort"\n{text}\n'))


def test_every_shipped_scenario_loads_and_five_are_there() -> None:
    names = {scenario.name for scenario in find_scenarios()}
    assert {
        "detector-anon",
        "detector-file",
        "detector-phases",
        "memcached-gcc",
        "postgres-duckdb",
    } <= names


def test_a_slo_may_be_left_to_the_measurement(tmp_path: Path) -> None:
    auto = parse_scenario(write(tmp_path, GOOD.replace("12.5", '"auto"')))
    assert auto.protected.slo.latency_ms is None


def test_the_tight_target_replaces_a_stated_one_and_nothing_else(tmp_path: Path) -> None:
    stated = parse_scenario(write(tmp_path, GOOD))
    assert states_target(stated.content)
    assert stated.with_target("stated") is stated
    tight = stated.with_target("tight")
    assert tight.protected.slo.latency_ms is None
    assert not states_target(tight.content)
    assert tight == scenario_from(tight.content, tmp_path / "mine.toml")
    assert workload_of(tight.content) == workload_of(stated.content)


def test_a_workload_is_all_but_the_target(tmp_path: Path) -> None:
    stated = parse_scenario(write(tmp_path, GOOD))
    auto = parse_scenario(write(tmp_path, GOOD.replace("12.5", '"auto"')))
    slower = parse_scenario(write(tmp_path, GOOD.replace("limit_mib = 100", "limit_mib = 90")))
    assert workload_of(stated.content) == workload_of(auto.content)
    assert workload_of(stated.content) != workload_of(slower.content)
    assert not states_target(auto.content)


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("limit_mib", "limit_mb", ["sandbox.limit_mib", "missing", "limit_mb"]),
        (
            "floor_mib",
            "flour_mib",
            ["background[0] has an unknown key 'flour_mib'", "Did you mean 'floor_mib'"],
        ),
        (
            "limit_mib = 100",
            "limit_mib = 100\nswap_mib = 8",
            ["swap_mib is 8", "0 or at least 64"],
        ),
        ("limit_mib = 100", "limit_mib = 100\nswap_mib = false", ["swap_mib", "a number"]),
        (
            "limit_mib = 100",
            'limit_mib = 100\ncompressed_swap = "zcache"',
            ["compressed_swap", "'none', 'zswap', 'zram'"],
        ),
        (
            "limit_mib = 100",
            'limit_mib = 100\nswap_mib = 0\ncompressed_swap = "zswap"',
            ["swap_mib is 0"],
        ),
        (
            "limit_mib = 100",
            'limit_mib = 100\ncompressor = "lzo"',
            ["nothing is compressed"],
        ),
        ("limit_mib = 100", "limit_mib = 100\ndisk_mib_per_s = 0", ["disk_mib_per_s", "from 1"]),
        ("limit_mib = 100", "limit_mib = 100\ndisk_ops_per_s = 5", ["disk_ops_per_s", "from 10"]),
        ("summary", "sumary", ["summary", "missing", "sumary"]),
        ("limit_mib = 100", 'limit_mib = "100"', ["sandbox.limit_mib", "a number", "a string"]),
        ("limit_mib = 100", "limit_mib = true", ["sandbox.limit_mib", "true or false"]),
        ("limit_mib = 100", "limit_mib = 500", ["ample_mib", "400", "500"]),
        ("limit_mib = 100", "limit_mib = -1", ["from 32"]),
        ("{seed}", "{sead}", ["protected.load.command", "{sead}", "Did you mean {seed}"]),
        ("nice = 0", "nice = 42", ["protected.server.nice", "0 to 19"]),
        ('cpus = "0-1"', 'cpus = "all"', ["protected.load.cpus", "taskset"]),
        ('latency_unit = "us"', 'latency_unit = "min"', ["latency_unit", "'s', 'ms', 'us', 'ns'"]),
        ("latency = 1\n", "", ["two of start, end, latency"]),
        ("start = 0", "start = -1", ["columns count from 0"]),
        ("start = 0", 'start = "a"\npattern = "(?P<b>.)"', ["latency", "a string"]),
        ("latency_ms = 12.5", 'latency_ms = "soon"', ["latency_ms", "auto"]),
        (
            "latency_ms = 12.5",
            "latency_msec = 12.5",
            ["unknown key 'latency_msec'", "Did you mean 'latency_ms'"],
        ),
        ("quantile = 0.99", "quantile = 99", ["quantile", "0.999"]),
        ("start_s = 5", "start_s = 2", ["phases[1].start_s", "at least 3"]),
        ('name = "hog"', 'name = "Hog!"', ["background[0].name", "small letters"]),
        (
            "[[background]]",
            "[[foreground]]",
            ["unknown key 'foreground'", "Did you mean 'background'"],
        ),
        ('["server", "--data", "{data}"]', '"server --data"', ["server.command", "a list"]),
        ('[["touch", "{data}/x"]]', '["touch x"]', ["prepare[0]", "list of strings"]),
        ('sh = "dash"', "sh = 1", ["needs.sh", "Debian package"]),
        ("[sandbox]", "[sandbox", ["not valid TOML"]),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, parts: list[str]) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(path)
    for words in (str(path), *parts):
        assert words in str(caught.value)


def test_a_pattern_must_have_the_groups_that_are_named(tmp_path: Path) -> None:
    text = GOOD.replace("start = 0", 'pattern = "(?P<t>[0-9]+)"\nstart = "t"').replace(
        "latency = 1", 'latency = "ms"'
    )
    with pytest.raises(ScenarioError, match=r"\(\?P<ms>"):
        parse_scenario(write(tmp_path, text))


def test_a_single_application_has_a_background(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="background has 0 groups, but must have 1 to 4"):
        parse_scenario(write(tmp_path, GOOD[: GOOD.index("[[background]]")]))


def test_a_fifth_group_is_refused(tmp_path: Path) -> None:
    group = GOOD[GOOD.index("[[background]]") :]
    more = "".join(group.replace('"hog"', f'"hog{i}"') for i in range(4))
    with pytest.raises(ScenarioError, match="has 5 groups"):
        parse_scenario(write(tmp_path, GOOD + more))


def test_two_groups_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="as of another group"):
        parse_scenario(write(tmp_path, GOOD + GOOD[GOOD.index("[[background]]") :]))


def test_a_log_may_name_a_unit_and_words_for_failed_requests(tmp_path: Path) -> None:
    text = GOOD.replace('latency_unit = "us"', 'unit = 3\nfailed_words = ["-1"]')
    latency = parse_scenario(write(tmp_path, text)).protected.latency
    assert (latency.unit, latency.failed_words) == ("3", ("-1",))


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(ScenarioError, match="Did you mean detector-anon"):
        load_scenario("detector-anom")


def test_a_missing_file_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="No such file"):
        load_scenario(tmp_path / "none.toml")


def spec(phases: tuple[Phase, ...], repeat_s: float | None) -> BackgroundSpec:
    return BackgroundSpec(
        name="x",
        command=Command(argv=("x",)),
        units=UnitLines(path="x"),
        phases=phases,
        repeat_s=repeat_s,
    )


def test_phases_repeat_until_the_end_and_are_cut_there() -> None:
    phases = (Phase(start_s=1, stop_s=3), Phase(start_s=4))
    assert running_phases(spec(phases, 5), 12) == (
        Phase(start_s=1, stop_s=3),
        Phase(start_s=4, stop_s=5),
        Phase(start_s=6, stop_s=8),
        Phase(start_s=9, stop_s=10),
        Phase(start_s=11, stop_s=12),
    )
    assert running_phases(spec((Phase(start_s=2),), None), 12) == (Phase(start_s=2, stop_s=12),)
    assert running_phases(spec((Phase(start_s=20),), None), 12) == ()
    assert is_scheduled(spec(phases, 5), 6.5, 7.5)
    assert not is_scheduled(spec(phases, 5), 2.5, 3.5), "it stops meanwhile"
    assert not is_scheduled(spec(phases, 5), 9.5, 11.5), "another phase"


def test_a_scenario_survives_in_a_recording() -> None:
    for scenario in find_scenarios():
        kept = json.loads(json.dumps(scenario.content))
        assert scenario_from(kept, Path(f"{scenario.name}.toml")) == scenario


def test_no_two_shipped_files_have_one_name() -> None:
    files = shipped_files()
    assert list(files) == sorted(files)
    assert len(files) == len(list(next(iter(files.values())).parents[1].rglob("*.toml")))
