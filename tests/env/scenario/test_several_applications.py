"""Scenarios that protect several applications: what they hold, and who takes only one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stallward.actuator.config.daemon_config import MOST_APPLICATIONS
from stallward.env.errors import ScenarioError
from stallward.env.recording.split import load_split
from stallward.env.scenario.file import load_scenario, parse_scenario, scenario_from
from stallward.env.scenario.scenario import MAX_APPLICATIONS, states_target, workload_of

TWO = """
summary = "a cache and a web server"
needs = { gzip = "gzip" }

[sandbox]
limit_mib = 600
ample_mib = 4096

[[protected]]
name = "cache"
of = "memcached-xz"
slo = { latency_ms = 2 }

[[protected]]
name = "web"
of = "nginx-hogs"
workers = 3
[protected.slo]
latency_ms = 5
quantile = 0.9
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(text)
    return path


def test_applications_are_those_of_shipped_scenarios_with_targets_of_their_own(
    tmp_path: Path,
) -> None:
    scenario = parse_scenario(write(tmp_path, TWO))
    cache, web = scenario.applications
    assert (cache, (web,)) == (scenario.protected, scenario.others)
    one = load_scenario("memcached-xz").protected
    assert cache == replace(one, name="cache", slo=cache.slo), "its data is shared, too"
    assert (cache.slo.latency_ms, cache.slo.quantile) == (2, 0.95)
    assert (web.slo.latency_ms, web.slo.quantile) == (5, 0.9)
    source = load_scenario("nginx-hogs").protected
    assert web == replace(source, name="web", slo=web.slo, workers=3), "its own key comes first"
    assert {need.program for need in scenario.needs} == {
        "memcached",
        "xz",
        "/usr/sbin/nginx",
        "gzip",
    }
    assert scenario.background == ()


def test_a_recording_has_all_of_a_scenario_with_several(tmp_path: Path) -> None:
    scenario = parse_scenario(write(tmp_path, TWO))
    kept = json.loads(json.dumps(scenario.content))
    assert scenario_from(kept, tmp_path / "two.toml") == scenario
    assert states_target(kept)
    assert "latency_ms" not in json.dumps(workload_of(kept))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[protected.slo]\nlatency_ms = 5",
            "[protected.slo]",
            "latency_ms is left to be measured",
        ),
        ('"web"', '"cache"', r"protected\[1\]\.name is 'cache', as of another application"),
        ('"web"', '"We b"', r"protected\[1\]\.name .* small letters"),
        ('name = "web"', "", r"protected\[1\]\.name is missing"),
        ('"nginx-hogs"', '"nginx-hog"', r"protected\[1\]\.of is .* no shipped scenario"),
        ('of = "nginx-hogs"', "of = 3", r"protected\[1\]\.of is 3, which is no shipped"),
        ('of = "nginx-hogs"', "", r"protected\[1\]\.server is missing"),
        ("workers = 3", "worker = 3", r"protected\[1\] has an unknown key 'worker'"),
        (TWO[TWO.rindex("[[protected]]") :], "", "protected has 1 applications"),
    ],
)
def test_mistakes_in_one_of_several_are_named(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in TWO
    with pytest.raises(ScenarioError, match=message):
        parse_scenario(write(tmp_path, TWO.replace(old, new)))


def test_there_are_at_most_as_many_as_a_daemon_protects(tmp_path: Path) -> None:
    head, one = TWO[: TWO.index("[[protected]]")], TWO[TWO.rindex("[[protected]]") :]
    many = "".join(one.replace("web", f"web{i}") for i in range(MAX_APPLICATIONS + 1))
    with pytest.raises(
        ScenarioError, match="protected has 17 applications, but must have 2 to 16"
    ):
        parse_scenario(write(tmp_path, head + many))
    assert MAX_APPLICATIONS == MOST_APPLICATIONS


def test_a_single_application_has_no_name(tmp_path: Path) -> None:
    text = TWO[: TWO.rindex("[[protected]]")].replace("[[protected]]", "[protected]")
    with pytest.raises(ScenarioError, match="unknown key 'name'"):
        parse_scenario(write(tmp_path, text))


def test_what_can_protect_only_one_refuses_several(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    with pytest.raises(ScenarioError, match=r"several applications \(cache, web\)") as caught:
        load_scenario(path)
    assert "compare --live" in caught.value.next_step
    assert load_split().part_of(load_scenario(path, several=True)) == "test"
    scenario = load_scenario(path, several=True)
    assert scenario.with_target("stated") is scenario
    with pytest.raises(ScenarioError, match="stated and not measured"):
        scenario.with_target("tight")
