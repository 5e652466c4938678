"""Numbers of a configuration that come from profiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from profile_files import MIB, profile_file

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml, load_config, parse_config
from stallward.actuator.config.profiles import with_profiles
from stallward.actuator.config.reload import check_reload
from stallward.actuator.errors import ConfigError

TEXT = """
[node]
zone = "stallward/1"
[protected]
group = "stallward/1/app"
{protected}
[[background]]
name = "hog"
group = "stallward/1/hog"
{slot}
[service]
socket = "/run/stallward.sock"
[journal]
path = "/var/lib/stallward/journal"
"""


def config(protected: str = "", slot: str = "") -> DaemonConfig:
    return parse_config(TEXT.format(protected=protected, slot=slot))


def test_demand_and_floor_are_taken_from_profiles(tmp_path: Path) -> None:
    path = profile_file(tmp_path / "a.json", working_set_mib=123, least_mib=45)
    named = config(f'profile = "{path}"', f'profile = "{path}"')
    found = with_profiles(named)
    assert found.applications[0].demand_bytes == 123 * MIB
    assert found.background[0].floor_bytes == 45 * MIB
    path.unlink()  # the processes of a daemon, and what undoes it, do without the file
    assert parse_config(config_toml(found)) == found
    (tmp_path / "config.toml").write_text(config_toml(named))
    assert load_config(tmp_path / "config.toml") == named


def test_a_configuration_without_profiles_stays_as_it_is() -> None:
    assert with_profiles(config()) == config()


@pytest.mark.parametrize(
    ("protected", "slot", "message"),
    [
        ("demand_bytes = 5\nprofile = '{path}'", "", "config.protected has both demand_bytes"),
        ("", "floor_bytes = 8192\nprofile = '{path}'", r"background\[0\] has both floor_bytes"),
        (
            "profile = '{folder}/no'",
            "",
            "config.protected.profile: The profile .* cannot be read",
        ),
        ("", "profile = '{wrong}'", r"config.background\[0\].profile: .* is not a profile"),
    ],
)
def test_a_mistake_names_key_and_file(
    tmp_path: Path, protected: str, slot: str, message: str
) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    places = {"path": profile_file(tmp_path / "a.json"), "folder": tmp_path, "wrong": wrong}
    named = config(protected.format(**places), slot.format(**places))
    with pytest.raises(ConfigError, match=message):
        with_profiles(named)


def test_a_profile_is_named_by_its_whole_path() -> None:
    with pytest.raises(ConfigError, match=r"config.protected.profile is 'a.json', a relative"):
        config("profile = 'a.json'")


def test_the_same_profile_again_is_no_change_that_takes_a_restart(tmp_path: Path) -> None:
    path = profile_file(tmp_path / "a.json", working_set_mib=10)
    running = with_profiles(config(f"profile = '{path}'"))
    check_reload(running, with_profiles(config(f"profile = '{path}'")))
    profile_file(path, working_set_mib=11)
    with pytest.raises(ConfigError, match=r"config\.protected has changed"):
        check_reload(running, with_profiles(config(f"profile = '{path}'")))
