"""What each of many nodes runs, and which of them take part in one experiment."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.errors import ExperimentError
from stallward.actuator.experiments.plan import Candidate, ExperimentPlan
from stallward.actuator.experiments.state import Progress
from stallward.actuator.experiments.wire import EXPERIMENT_PLAN, Experiment
from stallward.fleet.experiment_plan import FleetPlan, differing_policies, newest_of

ONE, OTHER = Candidate(policy="controller:pi"), Candidate(policy="controller:rule")
PLAN = ExperimentPlan(
    baseline=Candidate(), treatment=ONE, pairs=4, block_s=60.0, burn_in_s=10.0, seed=5
)
FLEET = FleetPlan(plan=PLAN, treatments=(ONE, OTHER), seed=5)


def experiment(plan: ExperimentPlan, began_s: float = 1.0) -> Experiment:
    return Experiment(
        plan=plan, progress=Progress.RUNNING, began_s=began_s, ended_s=None, blocks=(), phase=None
    )


@given(st.sets(st.text(min_size=1), min_size=1, max_size=30), st.integers(0, 2**63 - 1))
def test_draws_follow_from_the_seed_and_the_names_alone(names: set[str], seed: int) -> None:
    fleet = replace(FLEET, seed=seed)
    drawn = fleet.for_nodes(names)
    assert fleet.for_nodes(sorted(names, reverse=True)) == drawn
    assert len({plan.seed for plan in drawn.values()}) == len(names)
    assert {plan.fleet_seed for plan in drawn.values()} == {seed}
    shares = Counter(plan.treatment for plan in drawn.values())
    assert abs(shares[ONE] - shares[OTHER]) <= 1
    assert all(
        EXPERIMENT_PLAN.from_wire(EXPERIMENT_PLAN.to_wire(plan)) == plan for plan in drawn.values()
    )


def test_another_seed_draws_other_treatments_and_other_orders() -> None:
    names = [f"node-{k}" for k in range(40)]
    drawn = [replace(FLEET, seed=seed).for_nodes(names) for seed in (1, 2)]
    treatments = [[plans[name].treatment for name in names] for plans in drawn]
    orders = [[plans[name].arm_of(0) for name in names] for plans in drawn]
    assert treatments[0] != treatments[1]
    assert orders[0] != orders[1]
    assert len(set(orders[0])) == 2


def test_what_cannot_be_compared_is_refused() -> None:
    for treatments in ((), (ONE, ONE)):
        with pytest.raises(ExperimentError, match="differ from each other"):
            replace(FLEET, treatments=treatments)
    with pytest.raises(ExperimentError, match="end when they are certain"):
        replace(FLEET, plan=replace(PLAN, stop_when_certain=True))


def test_the_experiment_that_began_last_is_told_from_others() -> None:
    mine = replace(FLEET, seed=8).for_nodes(["a", "b"])
    older = FLEET.for_nodes(["c"])
    found = {
        "a": experiment(mine["a"], 5.0),
        "b": experiment(mine["b"], 6.0),
        "c": experiment(older["c"], 3.0),
        "d": experiment(PLAN, 9.0),
    }
    part, others = newest_of(found)
    assert list(part) == ["a", "b"]
    assert others == {
        "c": "its last experiment is that of the seed 5",
        "d": "its experiment is its own",
    }
    assert newest_of({"d": found["d"]})[0] == {}


def test_a_name_that_means_two_policies_is_noticed() -> None:
    plans = FLEET.for_nodes(["a", "b", "c", "d"])

    def loaded(digest: str) -> dict[str, Experiment]:
        digests = dict.fromkeys("abcd", "11" * 32) | {"c": digest}
        return {
            name: experiment(
                replace(plan, treatment=replace(plan.treatment, sha256=digests[name]))
            )
            for name, plan in plans.items()
        }

    assert differing_policies(loaded("11" * 32), plans) == ""
    assert "222222222222 on c" in differing_policies(loaded("22" * 32), plans)
