"""A pod is paused only so that the kubelet, as it asks probes, restarts none of its containers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pods import written

from stallward.actuator.targets.messages import PauseBudget, tightest
from stallward.kubernetes.errors import PodsError
from stallward.kubernetes.pod import parse_pod
from stallward.kubernetes.probes import ANSWER_S, HUNG_S, pause_budget

EPSILON_S = 1e-9
NEVER = PauseBudget(longest_s=0.0, shortest_run_s=ANSWER_S)


def probe(timeout: int = 1, period: int = 10, failures: int = 3) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/", "port": 80},
        "timeoutSeconds": timeout,
        "periodSeconds": period,
        "failureThreshold": failures,
    }


def budget_of(*probes: dict[str, Any], **spec: Any) -> PauseBudget | None:
    containers = [{"name": f"c{i}", "livenessProbe": one} for i, one in enumerate(probes)]
    return pause_budget({"containers": containers, **spec}, {})


@pytest.mark.parametrize(
    ("probes", "longest_s"),
    [
        ([{"exec": {"command": ["true"]}}], 0.5),  # the API's defaults: 1 s, every 10 s, 3 times
        ([{"grpc": {"port": 1}, "timeoutSeconds": 0}], 0.5),
        ([probe(timeout=9)], 8.5),
        ([probe(timeout=9), probe(timeout=2), probe(timeout=5)], 1.5),
        ([probe(timeout=5, failures=1)], 2.0),  # one attempt that fails restarts it
        ([probe(timeout=1, failures=1)], 0.0),
        ([probe(timeout=1, period=1, failures=2)], 0.0),
        ([probe(timeout=1, period=1, failures=4)], 0.5),
    ],
)
def test_the_most_impatient_probe_counts(probes: list[dict[str, Any]], longest_s: float) -> None:
    assert budget_of(*probes) == PauseBudget(longest_s=longest_s, shortest_run_s=ANSWER_S)


def test_a_pod_without_a_probe_sets_no_bound() -> None:
    assert pause_budget({"containers": [{"name": "a", "readinessProbe": probe()}]}, {}) is None
    assert parse_pod(written("batch")).pause is None


def test_a_pod_is_not_paused_while_a_container_starts_under_a_startup_probe() -> None:
    new = written("batch")
    new["spec"]["containers"][0] |= {"livenessProbe": probe(4), "startupProbe": probe(1, 1, 99)}
    assert parse_pod(new).pause == NEVER
    new["status"]["containerStatuses"] = [{"name": "one", "started": False}]
    assert parse_pod(new).pause == NEVER
    new["status"]["containerStatuses"] = [{"name": "one", "started": True}]
    assert parse_pod(new).pause == PauseBudget(longest_s=3.5, shortest_run_s=ANSWER_S)


def test_the_probes_of_sidecars_count() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "startupProbe": probe()}
    spec = {"containers": [{"name": "a"}], "initContainers": [sidecar]}
    assert pause_budget(spec, {}) == NEVER
    assert pause_budget(spec, {"initContainerStatuses": [{"name": "s", "started": True}]}) is None
    sidecar["livenessProbe"] = probe(2)
    started = pause_budget(spec, {"initContainerStatuses": [{"name": "s", "started": True}]})
    assert started is not None
    assert started.longest_s == 1.5


@pytest.mark.parametrize(("grace_s", "longest_s"), [(4, 2.0), (30, None), (600, None), (0, None)])
def test_a_pod_that_must_end_soon_keeps_half_of_its_time(
    grace_s: int, longest_s: float | None
) -> None:
    budget = budget_of(terminationGracePeriodSeconds=grace_s)
    assert (budget and budget.longest_s) == longest_s


def test_several_pods_have_the_tightest_budget() -> None:
    patient = PauseBudget(longest_s=4.0, shortest_run_s=0.1)
    quick = PauseBudget(longest_s=1.0, shortest_run_s=0.0)
    assert tightest([patient, None, quick]) == PauseBudget(longest_s=1.0, shortest_run_s=0.1)
    assert tightest([None, None]) is None
    assert tightest([]) is None


def test_the_share_of_the_time_follows() -> None:
    assert PauseBudget(longest_s=0.5, shortest_run_s=0.5).share == 0.5
    assert NEVER.share == 0.0


@pytest.mark.parametrize("value", ["1", -1, 1.5, True, 10**12, math.nan, [1]])
@pytest.mark.parametrize("key", ["timeoutSeconds", "periodSeconds", "failureThreshold"])
def test_a_probe_that_is_none_is_refused(key: str, value: object) -> None:
    bad = written("batch")
    bad["spec"]["containers"][0]["livenessProbe"] = {key: value}
    with pytest.raises(PodsError):
        parse_pod(bad)


# ------------------------------------------------------------------ the kubelet as a model


def failed_in_a_row(pauses: list[tuple[float, float]], one: dict[str, Any], first_s: float) -> int:
    """How many attempts fail in a row, of a container that needs ``ANSWER_S`` to answer."""
    timeout_s, period_s = float(one["timeoutSeconds"]), float(one["periodSeconds"])
    begin_s, most, row = first_s, 0, 0
    while begin_s < pauses[-1][1] + 1.0:
        end_s = begin_s + timeout_s
        still_s = sum(max(min(e, end_s) - max(b, begin_s), 0.0) for b, e in pauses)
        answers = timeout_s - still_s >= ANSWER_S - EPSILON_S
        row = 0 if answers else row + 1
        most = max(most, row)
        # An answer within the timeout ends an attempt early; only failures take all of it.
        begin_s += period_s if answers else max(period_s, timeout_s)
    return most


probes = st.builds(
    probe, timeout=st.integers(1, 6), period=st.integers(1, 12), failures=st.integers(1, 4)
)


@given(one=probes, first_s=st.floats(0.0, 12.0), early=st.floats(0.5, 1.0))
def test_no_attempt_fails_however_often_the_pod_is_paused(
    one: dict[str, Any], first_s: float, early: float
) -> None:
    budget = budget_of(one)
    assert budget is not None
    if budget.longest_s <= 0.0:
        return
    length_s, every_s = budget.longest_s * early, budget.longest_s * early + budget.shortest_run_s
    pauses = [(i * every_s, i * every_s + length_s) for i in range(60)]
    assert failed_in_a_row(pauses, one, first_s) == 0


@given(one=probes, first_s=st.floats(-12.0, 0.0))
def test_a_daemon_that_hangs_restarts_nothing(one: dict[str, Any], first_s: float) -> None:
    budget = budget_of(one)
    assert budget is not None
    if budget.longest_s > 0.0:
        pauses = [(0.0, budget.longest_s + HUNG_S)]
        assert failed_in_a_row(pauses, one, first_s) < one["failureThreshold"]
