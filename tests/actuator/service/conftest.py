"""Services that are stopped after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service_without_loop import Service


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    services: list[Service] = []

    def starting(**options: object) -> Service:
        services.append(Service(tmp_path, **options))
        return services[-1]

    yield starting
    for service in services:
        service.close()
