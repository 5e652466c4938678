"""Several nodes are watched and asked over mutual TLS, and one of them has a bad network."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from service_without_loop import WAIT_S, Service
from tls_nodes import Network, Party, make_party, wait_for_port

from stallward.actuator.client import ActuatorClient
from stallward.fleet import Fleet, FleetWatch, load_fleet

NAMES = ("a", "b", "c")


@pytest.fixture
def parties(tmp_path: Path) -> dict[str, Party]:
    """Three nodes with certificates of one authority."""
    ca, made = trustme.CA(), {}
    for name in NAMES:
        (tmp_path / name).mkdir()
        made[name] = make_party(tmp_path / name, ca)
    return made


@pytest.fixture
def services(parties: dict[str, Party]) -> Iterator[dict[str, Service]]:
    with ExitStack() as stack:
        made = {name: party.serve() for name, party in parties.items()}
        for one in made.values():
            stack.callback(one.close)
            one.tick()
        for party in parties.values():
            wait_for_port(party)
        yield made


def test_one_file_names_nodes_and_one_certificate_reaches_all(
    tmp_path: Path, parties: dict[str, Party], services: dict[str, Service]
) -> None:
    parties["a"].client("observer")
    file = tmp_path / "fleet.toml"
    lines = [f'{name} = "127.0.0.1:{party.port}"' for name, party in parties.items()]
    file.write_text("\n".join(['tls = "a/observer"', "[nodes]", *lines]))
    with Fleet(load_fleet(file)) as fleet:
        answers = fleet.ask(lambda _name, client: client.status().slo_ms)
    assert answers.given == dict.fromkeys(services, 60.0)
    assert not answers.failed


@pytest.mark.slow
def test_a_node_whose_network_failed_is_named_and_the_others_go_on(
    parties: dict[str, Party], services: dict[str, Service]
) -> None:
    network = Network(parties["b"].port)
    daemons = {name: party.client("observer") for name, party in parties.items()}
    daemons["b"] = replace(daemons["b"], address=f"127.0.0.1:{network.port}", silence_s=1.5)
    try:
        with Fleet(daemons) as fleet, FleetWatch(fleet) as watch:
            deadline_s, sequence = time.monotonic() + WAIT_S, 0
            while not watch.counts["b"].problem:
                assert time.monotonic() < deadline_s, watch.counts
                sequence += 1
                for one in services.values():
                    one.tick(sequence)
                watch.next(0.02)
                time.sleep(0.01)
                if all(count.received for count in watch.counts.values()):
                    network.fail()
            assert f"127.0.0.1:{network.port}" in watch.counts["b"].problem
            begun = watch.counts["a"].received
            services["a"].tick(sequence + 1)
            while watch.counts["a"].received == begun:
                assert time.monotonic() < deadline_s
                watch.next(0.1)
            assert watch.counts["a"].problem == watch.counts["c"].problem == ""
    finally:
        network.close()
    with ActuatorClient(parties["b"].client("observer")) as client:
        client.wait_ready(WAIT_S)
