"""Ray Tune's schedulers stop worse trials, never the first, and remember a search that goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stallward.training.progress import silent
from stallward.training.recipe_search.space import Budget, SchedulerSettings, Space, Values
from stallward.training.recipe_search.trials import Judgement, TrialLog, Worth

if TYPE_CHECKING:
    from stallward.training.recipe_search.listener import Listener

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed"),
    pytest.mark.slow,  # for the import of Ray Tune
]


@dataclass(eq=False, slots=True)
class FakeTrial:
    """What a scheduler knows of a trial."""

    number: int
    last_result: dict[str, Any] | None = None

    @property
    def trial_id(self) -> str:
        return f"abc_{self.number:05d}"

    def is_finished(self) -> bool:
        return self.last_result is not None


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Listener]:
    """The listener of this search."""
    from stallward.training.recipe_search.listener import (  # noqa: PLC0415 - it imports Ray
        Listener,
        listening,
    )

    follower = Listener(
        TrialLog(identity="abc"),
        tmp_path,
        trials=4,
        limit_s=1.0,
        report=silent,
        store=lambda: None,
        interrupt=lambda: None,
    )
    with listening(follower):
        yield follower


def scheduler(kind: str) -> Any:
    from stallward.training.recipe_search.tuning import make_scheduler  # noqa: PLC0415

    space = Space(
        settings={"ent_coef": Values(low=0.1, high=0.2)},
        budget=Budget(decisions=400, trials=4),
        scheduler=SchedulerSettings(kind=kind),
    )
    made = make_scheduler(space)
    made.set_search_properties("merit", "max")
    return made


def finished(number: int, *merits: float) -> FakeTrial:
    judgements = tuple(
        Judgement(decisions=100 * (k + 1), merit=merit) for k, merit in enumerate(merits)
    )
    return FakeTrial(number, {"judgements": judgements})


def judge(made: Any, trial: FakeTrial, decisions: int, merit: float, **more: Any) -> str:
    return str(made.on_trial_result(None, trial, {"decisions": decisions, "merit": merit, **more}))


@pytest.mark.parametrize("kind", ["asha", "median"])
def test_a_worse_trial_is_stopped_though_the_better_ones_are_of_an_earlier_command(
    kind: str, follower: Listener
) -> None:
    made = scheduler(kind)
    for number in (0, 1, 2):
        made.on_trial_add(None, finished(number, 0.5, 0.6, 0.7, 0.8))
    better, worse = FakeTrial(3), FakeTrial(4)
    for trial in (better, worse):
        made.on_trial_add(None, trial)
    assert judge(made, worse, 100, 0.1) == "STOP"
    assert judge(made, better, 100, 0.9) == "CONTINUE"
    assert judge(made, better, 200, 0.9) == "CONTINUE"
    assert {t.number: t.state for t in follower.log.trials} == {4: "stopped early"}


@pytest.mark.parametrize("kind", ["asha", "median"])
def test_the_first_trial_is_never_stopped(kind: str, follower: Listener) -> None:
    made, first = scheduler(kind), FakeTrial(0)
    for trial in (finished(1, 0.5, 0.6), finished(2, 0.5, 0.6), finished(3, 0.5, 0.6), first):
        made.on_trial_add(None, trial)
    assert judge(made, first, 100, 0.1) == "CONTINUE"
    assert judge(made, first, 200, 0.1) == "CONTINUE"
    assert follower.log.trials == ()


@pytest.mark.parametrize("kind", ["asha", "median", "none"])
def test_a_trial_that_has_ended_is_not_called_stopped(kind: str, follower: Listener) -> None:
    made, trial = scheduler(kind), FakeTrial(1)
    made.on_trial_add(None, trial)
    worth = Worth(merit=0.1, low=0.1, fresh_merit=0.1, fresh_low=0.1)
    assert judge(made, trial, 400, 0.1, worth=worth) == "CONTINUE"
    assert follower.log.trials == ()
