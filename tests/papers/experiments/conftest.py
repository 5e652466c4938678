"""What the tests of the documents share."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.env.workloads.native.build import build_native


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled programs of the scenarios."""
    return build_native(tmp_path_factory.mktemp("cache"))
