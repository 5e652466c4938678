"""Services that are stopped after each test, and the certificates of one on TCP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from service_without_loop import Service, ServiceProcess
from tls_nodes import Party, make_party

_Kind = TypeVar("_Kind", bound=Service)


def _starting(folder: Path, kind: type[_Kind]) -> Iterator[Callable[..., _Kind]]:
    services: list[_Kind] = []

    def start(*, folder: Path = folder, **options: Any) -> _Kind:
        services.append(kind(folder, **options))
        return services[-1]

    yield start
    for service in services:
        service.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    yield from _starting(tmp_path, Service)


@pytest.fixture
def start_process(tmp_path: Path) -> Iterator[Callable[..., ServiceProcess]]:
    yield from _starting(tmp_path, ServiceProcess)


@pytest.fixture
def party(tmp_path: Path) -> Party:
    return make_party(tmp_path)
