"""One Ray of two worker processes for all tests of a run: starting one takes seconds.

A file of tests takes it with ``pytest_plugins = ("shared_ray",)``. It is imported before that, too
late to have its assertions rewritten (PYTEST_DONT_REWRITE).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import pytest

from stallward.training.parallel.ray_cluster import open_ray

if TYPE_CHECKING:
    from stallward.training.parallel.ray_tasks import RayTasks

MARKS: Final = [
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed"),
    pytest.mark.slow,
    pytest.mark.ray,
    # Ray leaves it to the end of the process to wait for its own processes, and to close files.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""The marks of tests on Ray."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests on Ray last: beside it no other test could look at the processes it has."""
    items.sort(key=lambda item: item.get_closest_marker("ray") is not None)


@pytest.fixture(scope="session")
def on_ray() -> Iterator[RayTasks]:
    """Jobs on a Ray of this machine, which all tests share.

    It is this process's only one: while it is there, another is to be started in a process of its
    own, without the variables RAY_*.
    """
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
            executor = stack.enter_context(open_ray("local"))
        yield executor


@pytest.fixture(scope="module")
def by_value(request: pytest.FixtureRequest, on_ray: RayTasks) -> Iterator[None]:
    """Send the functions of a file of tests themselves: the workers cannot import it."""
    from ray import cloudpickle

    del on_ray
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


def without_ray() -> dict[str, str]:
    """The environment for a process that is not to know of the Ray that all tests share."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
