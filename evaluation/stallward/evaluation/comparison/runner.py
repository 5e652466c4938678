"""What runs the blocks of a comparison: this machine, or a scenario's twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from stallward.env.scenario.scenario import Scenario
from stallward.env.twin.inputs.find import find_twin_of
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.evaluation.blocks.live import open_session
from stallward.evaluation.blocks.request import Runner
from stallward.evaluation.comparison.request import ComparisonRequest

OpenRunner = Callable[[], AbstractContextManager[Runner]]
"""A function that opens a :class:`Runner` for the time of a context."""


@contextmanager
def open_runner(request: ComparisonRequest, scenario: Scenario) -> Iterator[Runner]:
    """Open the runner for the blocks of a comparison."""
    if request.mode == "live":
        with open_session(scenario) as session:
            yield session
    else:
        from stallward.evaluation.blocks.twin import open_twin  # noqa: PLC0415 - numba takes 90 MiB

        yield open_twin(scenario, request.twin)


def twin_fitted(request: ComparisonRequest, scenario: Scenario) -> bool | None:
    """Whether the twin of a comparison was fitted to recordings of the scenario."""
    if request.mode == "live":
        return None
    return load_fitted(find_twin_of(scenario.name, request.twin)).saw_its_scenario
