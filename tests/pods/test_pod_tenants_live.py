"""Two tenants on real cgroups: what one writes on pods of its own does nothing to the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pod_sandbox import MIB, PodSandbox, frozen, pod_sandbox
from pods import mirror_of, uid_of

from stallward.actuator.client import ActuatorClient
from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.targets.kubelet_groups import Driver
from stallward.actuator.targets.qos import Qos
from stallward.agent.desired import DesiredState, SlotDesire

pytestmark = pytest.mark.live

HELD = DesiredState(slots=(SlotDesire(paused=True, limit_bytes=12 * MIB, cpu_weight=1),) * 2)
ROLE = "stallward.io/role"
PROTECTED, OTHER, OWN, THIEF, MARK = range(1, 6)
"""The pods by their numbers: three that run, and two that are only listed."""
LOOKS_S = 1.5
"""So long is looked whether a pod is held: a new one is within 0.7 s."""


def wait_for(condition: Callable[[], object], timeout_s: float = 20.0) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())


def missing(client: ActuatorClient) -> str:
    return "\n".join(client.status().missing)


def ever_frozen(*groups: Cgroup) -> bool:
    deadline_s = time.monotonic() + LOOKS_S
    while time.monotonic() < deadline_s:
        if any(map(frozen, groups)):
            return True
        time.sleep(0.005)
    return False


@pytest.fixture
def box(tmp_path: Path) -> Iterator[PodSandbox]:
    with pod_sandbox(tmp_path, Driver.CGROUPFS) as made:
        yield made


def test_what_a_tenant_writes_holds_nobody_of_another_one_and_takes_no_protection(
    box: PodSandbox,
) -> None:
    with Daemon(box.config()) as daemon, daemon.client() as client:
        app = box.start(
            PROTECTED, "app", namespace="a", annotations={ROLE: "protected"}, qos=Qos.BURSTABLE
        )
        other = box.start(OTHER, "other", namespace="a")
        own = box.start(OWN, namespace="b")
        client.apply(HELD, lease_s=60.0, holder="test")
        assert wait_for(lambda: frozen(own)), daemon.last_words()
        attacks: list[dict[str, Any]] = []
        for victim in (PROTECTED, OTHER):
            hashed = {"kubernetes.io/config.hash": uid_of(victim)}
            attacks += [{"annotations": hashed}, mirror_of(uid_of(victim))]
        for number, written in enumerate(attacks):
            # The second slot is free for it, so it would be held at once.
            box.list(THIEF, "batch", namespace="b", **written)
            box.list(MARK, f"mark-{number}", annotations=["odd"])
            assert wait_for(lambda n=number: f"work/mark-{n}" in missing(client))  # type: ignore[misc]
            client.apply(HELD, lease_s=60.0, holder="test")
            assert not ever_frozen(app, other)
            said = missing(client)
            assert "none for batch-2" in said
            assert ("b/batch: an annotation names the group of another pod, a/" in said) == (
                "ownerReferences" in written
            )
            assert wait_for(lambda: frozen(own)), "the application is protected as before"
            box.unlist(THIEF)
            box.unlist(MARK)
            assert wait_for(lambda n=number: f"mark-{n}" not in missing(client))  # type: ignore[misc]
            assert "none for batch-2" in missing(client), "its end makes no pod appear"
            assert wait_for(lambda: frozen(own)), "the application is known as before"
        assert client.status().pods[0] == ("b/batch",)
