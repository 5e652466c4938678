"""A server for the tests that scrape."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_pages import Endpoint


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.stop()
