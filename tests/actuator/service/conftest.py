"""Services that are stopped after each test, and the certificates of one on TCP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service_without_loop import Service
from tls_nodes import Party, make_party


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    services: list[Service] = []

    def starting(**options: object) -> Service:
        services.append(Service(tmp_path, **options))
        return services[-1]

    yield starting
    for service in services:
        service.close()


@pytest.fixture
def party(tmp_path: Path) -> Party:
    return make_party(tmp_path)
