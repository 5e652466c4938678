"""One cluster for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import node_space
import programs
import pytest
from control_plane import ControlPlane
from kubelet import start_kubelet


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of one node, whose pods run."""
    why = node_space.why_missing() or programs.why_missing()
    if why:
        pytest.skip(why)
    space = node_space.NodeSpace(tmp_path_factory.mktemp("node"))
    try:
        plane = ControlPlane(space)
        plane.start()
        start_kubelet(plane)
        yield plane
    finally:
        space.close()
