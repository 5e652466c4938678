"""How long a pod may be paused without the kubelet restarting one of its containers. Pure.

The kubelet asks each liveness probe every ``periodSeconds``, and at once again where an answer
took longer than that. An attempt without an answer within ``timeoutSeconds`` has failed, and
``failureThreshold`` failed attempts in a row restart the container. When attempts begin is not
known, so any moment counts. Two things must hold of each probe, and the shortest pause counts:

* Every attempt has :data:`ANSWER_S` of time in which the pod runs. So a pause is that much
  shorter than ``timeoutSeconds``, and the pod runs for that long after each. Then no attempt
  fails, however many pauses follow each other.
* A daemon that hangs overruns a pause by up to :data:`HUNG_S`, until it is killed. Even then an
  attempt is answered before so many in a row have failed.

While a container starts under a startup probe, its pod is never paused: how long it needs is not
known, and each pause takes from the time that the probe gives it. A pod whose grace period is
shorter than usual keeps half of it.

Sources: kubernetes pkg/kubelet/prober/worker.go; the defaults are those of the API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from stallward.actuator.targets.messages import PauseBudget, tightest

ANSWER_S: Final = 0.5
"""How long a container must run to answer a probe."""
HUNG_S: Final = 2.0
"""By how much a daemon that hangs may overrun a pause, until it is killed and everything is put
back."""
_USUAL_GRACE_S: Final = 30
_MOST_S: Final = (1 << 31) - 1


def pause_budget(spec: Mapping[str, Any], status: Mapping[str, Any]) -> PauseBudget | None:
    """Return how a pod may be paused; ``None`` if the pod sets no bound.

    Args:
        spec: Its ``spec``, as the API writes it.
        status: Its ``status``.

    Raises:
        AttributeError, TypeError, ValueError: If a probe is none.
    """
    started = {
        one.get("name")
        for key in ("containerStatuses", "initContainerStatuses")
        for one in status.get(key) or ()
        if one.get("started") is True
    }
    budgets = list(_of_grace(spec))
    for key in ("containers", "initContainers"):
        for container in spec.get(key) or ():
            if container.get("livenessProbe"):
                budgets.append(_of_probe(container["livenessProbe"]))
            if container.get("startupProbe") and container.get("name") not in started:
                budgets.append(PauseBudget(longest_s=0.0, shortest_run_s=ANSWER_S))
    return tightest(budgets)


def _of_probe(probe: Mapping[str, Any]) -> PauseBudget:
    timeout_s = _number(probe, "timeoutSeconds", 1)
    between_s = max(_number(probe, "periodSeconds", 10), timeout_s)
    # From the begin of the first attempt that fails to the end of the last.
    until_restart_s = (_number(probe, "failureThreshold", 3) - 1) * between_s + timeout_s
    # An attempt that begins less than an answer before the pause fails, too.
    longest_s = min(timeout_s - ANSWER_S, until_restart_s - 2.0 * ANSWER_S - HUNG_S)
    return PauseBudget(longest_s=max(longest_s, 0.0), shortest_run_s=ANSWER_S)


def _of_grace(spec: Mapping[str, Any]) -> Iterator[PauseBudget]:
    """A pod that is told to end must not spend its grace period paused."""
    grace_s = _number(spec, "terminationGracePeriodSeconds", _USUAL_GRACE_S)
    if grace_s < _USUAL_GRACE_S:
        yield PauseBudget(longest_s=grace_s / 2.0, shortest_run_s=0.0)


def _number(table: Mapping[str, Any], key: str, default: int) -> int:
    """A whole number; 0 counts as the default, as the API writes none."""
    value = table.get(key) or default
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_S:
        raise ValueError(f"{key} is {value!r:.40}")
    return value
