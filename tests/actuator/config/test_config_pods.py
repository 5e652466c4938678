"""Pods in the configuration: what they may say, and how a table becomes several slots."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stallward.actuator.config.load import config_toml, parse_config
from stallward.actuator.config.reload import check_reload
from stallward.actuator.errors import ConfigError, KubeletGroupError
from stallward.actuator.targets.qos import Qos

BASE = """
[service]
socket = "/run/s.sock"
[journal]
path = "/run/journal"
"""
PODS = (
    BASE
    + """
[protected]
pod = { namespace = "shop", selector = "app=cache" }
[[background]]
name = "batch"
floor_bytes = 33554432
pod = { selector = "tier in (batch, ml)", slots = 3, group_by = "label:job" }
[[background]]
name = "marked"
pod = { role = "background", qos = ["BestEffort"] }
[kubernetes]
node = "node-7"
"""
)


def test_one_table_is_as_many_slots_as_it_says() -> None:
    config = parse_config(PODS)
    assert [slot.name for slot in config.background] == ["batch-1", "batch-2", "batch-3", "marked"]
    assert {slot.floor_bytes for slot in config.background[:3]} == {33554432}
    assert {slot.pod.group_by for slot in config.background[:3] if slot.pod} == {"label:job"}
    assert config.background[3].pod is not None
    assert config.background[3].pod.qos == (Qos.BEST_EFFORT,)
    assert config.follows_pods
    assert config.kubernetes.node == "node-7"


def test_a_configuration_with_pods_is_written_and_read_back() -> None:
    config = parse_config(PODS)
    assert parse_config(config_toml(config)) == config
    check_reload(config, parse_config(PODS))
    with pytest.raises(ConfigError, match=r"config\.background has changed"):
        check_reload(config, parse_config(PODS.replace("slots = 3", "slots = 2")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[protected]\npod = { selector = "a", slots = 2 }', "protected.pod.slots is not 1"),
        ('[protected]\ngroup = "a"\npod = { selector = "a" }', "names group and pod"),
        (
            '[protected]\npod = { selector = "a", group_by = "qos" }',
            "protected.pod.group_by is 'qos'",
        ),
        ('[protected]\npod = { selector = "a", group_by = "team" }', "group_by is 'team'"),
        ("[protected]", "neither group nor processes nor pod"),
        ("[protected]\npod = {}", "protected.pod.selector is missing"),
        ('[protected]\npod = { selector = "a in" }', "protected.pod.selector is 'a in'"),
        ('[protected]\npod = { selector = "a", qos = ["Best"] }', "qos"),
        (
            '[protected]\npod = { selector = "a" }\n[kubernetes]\nsource = "file"',
            "kubernetes.path goes with",
        ),
        (
            '[protected]\npod = { selector = "a" }\n[kubernetes]\nsource = "kubelet"\npath = "/p"',
            "kubernetes.path goes with",
        ),
        (
            '[protected]\npod = { selector = "a" }\n[kubernetes]\nserver_name = " "',
            "kubernetes.server_name is empty",
        ),
        (
            '[protected]\npod = { selector = "a" }\n[kubernetes]\nserver = "http://example.com"',
            "not encrypted",
        ),
        (
            '[protected]\npod = { selector = "a" }\n[kubernetes]\ntoken = "token"',
            "kubernetes.token is 'token', a relative path",
        ),
        ('[protected]\npod = { selector = "a" }\n[kubernetes]\nresync_s = 0', "outside 1"),
    ],
)
def test_a_mistake_is_refused_with_its_key(text: str, said: str) -> None:
    background = '\n[[background]]\nname = "b"\npod = { selector = "b" }\n'
    with pytest.raises(ConfigError, match=said):
        parse_config(BASE + text + background)


@pytest.mark.parametrize(
    "group",
    [
        "kubepods.slice/kubepods-besteffort.slice",
        "kubepods/burstable",
        "kubepods",
        "kubepods/besteffort/pod0f0c5d2e-7c4b/9f3c",
    ],
)
def test_a_group_that_the_kubelet_sets_itself_is_no_slot(group: str) -> None:
    config = parse_config(PODS)
    slot = replace(config.background[0], pod=None, group=group)
    with pytest.raises(ConfigError, match=r"background\[0\]\.group") as caught:
        replace(config, background=(slot,))
    assert isinstance(caught.value.__cause__, KubeletGroupError)
    assert "pod = " in caught.value.next_step
    pod_level = replace(slot, group="kubepods/besteffort/pod0f0c5d2e-7c4b")
    replace(config, background=(pod_level,))
    protected = replace(config.applications[0], pod=None, group=group)
    replace(config, protected=protected, background=config.background)
