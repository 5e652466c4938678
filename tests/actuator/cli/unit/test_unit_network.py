"""The network of the systemd unit is as wide as the addresses of the configuration."""

from __future__ import annotations

import pytest
from unit_settings import PROMETHEUS, STATSD, config_of, settings

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.errors import ConfigError

WORK = 'source = "prometheus", metric = "m", allow_remote = true, url = "http://{}/metrics"'
LOCAL = {"IPAddressDeny": ["any"], "IPAddressAllow": ["localhost"]}


@pytest.mark.parametrize(
    ("config", "network"),
    [
        (config_of(), {"PrivateNetwork": ["yes"], "IPAddressDeny": ["any"]}),
        (
            config_of(service='metrics = "/run/stallward/metrics.sock"'),
            {"PrivateNetwork": ["yes"]},
        ),
        (config_of(latency='source = "grpc"'), {"PrivateNetwork": ["yes"]}),
        (config_of(service='metrics = "127.0.0.1:9180"'), LOCAL),
        (config_of(service='metrics = "[::1]:9180"'), LOCAL),
        (config_of(latency=STATSD.format("127.0.0.1:8125")), LOCAL),
        (config_of(latency=PROMETHEUS.format("localhost:9100")), LOCAL),
        (
            config_of(latency=PROMETHEUS.format("10.0.0.5:9100")),
            {"IPAddressDeny": ["any"], "IPAddressAllow": ["localhost 10.0.0.5"]},
        ),
        (
            config_of(latency=PROMETHEUS.format("[fd00::5]:9100")),
            {"IPAddressDeny": ["any"], "IPAddressAllow": ["localhost fd00::5"]},
        ),
        (config_of(latency=PROMETHEUS.format("app.example:9100")), {"IPAddressAllow": ["any"]}),
        (config_of(work=WORK.format("127.0.0.1:9100")), LOCAL),
        (
            config_of(
                latency=PROMETHEUS.format("10.0.0.5:9100"), work=WORK.format("10.0.0.6:9100")
            ),
            {"IPAddressDeny": ["any"], "IPAddressAllow": ["localhost 10.0.0.5 10.0.0.6"]},
        ),
        (config_of(work=WORK.format("jobs.example:9100")), {"IPAddressAllow": ["any"]}),
        (
            config_of(kubernetes='server = "https://10.0.0.9:6443"'),
            {"IPAddressDeny": ["any"], "IPAddressAllow": ["localhost 10.0.0.9"]},
        ),
        (
            config_of(kubernetes='source = "kubelet"\nserver = "https://127.0.0.1:10250"'),
            LOCAL,
        ),
        (
            config_of(kubernetes='source = "file"\npath = "/etc/stallward/pods.json"'),
            {"PrivateNetwork": ["yes"], "IPAddressDeny": ["any"]},
        ),
        (config_of(remote='address = "0.0.0.0:7443"'), {"IPAddressAllow": ["any"]}),
        (
            config_of(remote='address = "0.0.0.0:7443"\nnetworks = ["10.0.0.0/8", "fd00::5"]'),
            {"IPAddressDeny": ["any"], "IPAddressAllow": ["localhost 10.0.0.0/8 fd00::5"]},
        ),
        (
            config_of(
                remote='address = "0.0.0.0:7443"\nnetworks = ["10.0.0.0/8"]',
                service='metrics = "0.0.0.0:9180"\nmetrics_public = true',
            ),
            {"IPAddressAllow": ["any"]},
        ),
        (config_of(latency=STATSD.format("0.0.0.0:8125")), {"IPAddressAllow": ["any"]}),
        (
            config_of(service='metrics = "0.0.0.0:9180"\nmetrics_public = true'),
            {"IPAddressAllow": ["any"]},
        ),
    ],
)
def test_the_network_is_as_wide_as_the_addresses_of_the_configuration(
    config: DaemonConfig, network: dict[str, list[str]]
) -> None:
    found = settings(config)
    keys = {"PrivateNetwork", "IPAddressDeny", "IPAddressAllow"}
    got = {key: value for key, value in found.items() if key in keys}
    assert network.items() <= got.items()
    assert ("IPAddressDeny" in got) == (got.get("IPAddressAllow") != ["any"])
    families = ["AF_UNIX"] if "PrivateNetwork" in got else ["AF_UNIX AF_INET AF_INET6"]
    assert found["RestrictAddressFamilies"] == families


@pytest.mark.parametrize("kubernetes", ['node = "node-7"', 'source = "kubelet"'])
def test_a_unit_must_be_told_where_the_api_server_or_the_kubelet_is(kubernetes: str) -> None:
    with pytest.raises(ConfigError, match=r"kubernetes\.server is missing"):
        settings(config_of(kubernetes=kubernetes))
