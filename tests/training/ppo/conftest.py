"""What several modules of these tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def one_processor() -> Iterator[None]:
    """Train one seed after the other, because a process for each would import torch first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _process: {0})
        yield
