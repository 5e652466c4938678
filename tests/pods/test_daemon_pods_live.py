"""The whole daemon on real cgroups of a kubelet's shape, whose pods come and go."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pod_rollouts import soak
from pod_sandbox import MIB, UNLIMITED, PodSandbox, frozen, limit_of, pod_sandbox

from stallward.actuator.client import ActuatorClient
from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.errors import DaemonUnavailableError
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.targets.kubelet_groups import Driver
from stallward.actuator.targets.qos import Qos
from stallward.agent.desired import DesiredState, SlotDesire

pytestmark = pytest.mark.live

HELD = DesiredState(slots=(SlotDesire(paused=True, limit_bytes=12 * MIB, cpu_weight=1),) * 2)
APP = {"annotations": {"stallward.io/role": "protected"}, "qos": Qos.BURSTABLE}


def wait_for(condition: Callable[[], object], timeout_s: float = 20.0) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())


# Each driver names its groups in its own way, which plain tests read; one always runs here.
@pytest.fixture(params=[Driver.CGROUPFS, pytest.param(Driver.SYSTEMD, marks=pytest.mark.reaches)])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PodSandbox]:
    with pod_sandbox(tmp_path, request.param) as made:
        yield made


def missing(client: ActuatorClient) -> str:
    try:
        return "\n".join(client.status().missing)
    except DaemonUnavailableError as error:  # its loop was killed, and starts
        return f"pods: none known. {error}"


def hold(client: ActuatorClient, desired: DesiredState) -> None:
    """Have something held for a minute, as soon as the loop takes commands."""

    def is_taken() -> bool:
        try:
            client.apply(desired, lease_s=60.0, holder="test")
        except DaemonUnavailableError:
            return False
        return True

    assert wait_for(is_taken), missing(client)


def test_pods_come_and_go_under_a_daemon_and_nothing_of_them_is_left(box: PodSandbox) -> None:
    with Daemon(box.config()) as daemon, daemon.client() as client:
        assert "pods: none for protected, batch-1, batch-2" in missing(client)
        hold(client, HELD)
        first = box.start(1)
        assert wait_for(lambda: "none for protected, batch-2" in missing(client)), missing(client)
        assert not frozen(first), "nothing is held for an application that is not there"
        box.start(2, "app", **APP)
        assert wait_for(lambda: frozen(first)), daemon.last_words()
        second = box.start(3)
        assert wait_for(lambda: frozen(second))
        box.stop(1)  # while it is paused
        third = box.start(4)
        assert wait_for(lambda: frozen(third)), daemon.last_words()
        assert frozen(second), "no other pod has moved"
        box.list(4, "other")  # it lives on, and is no background any more
        assert wait_for(lambda: not frozen(third) and limit_of(third) in UNLIMITED)
        box.list(4, "batch")
        assert wait_for(lambda: frozen(third)), missing(client)
        loop = daemon.pids.loop
        os.kill(loop or 0, signal.SIGKILL)
        assert wait_for(lambda: not frozen(second) and not frozen(third))
        assert wait_for(lambda: daemon.pids.loop not in {None, loop})
        assert wait_for(lambda: "pods: none" not in missing(client)), missing(client)
        hold(client, HELD)
        assert wait_for(lambda: frozen(second)), missing(client)
        box.stop(2)  # the application ends: nothing is held for it any more
        assert wait_for(lambda: not frozen(second) and not frozen(third))
        box.start(5, "app", **APP)
        assert wait_for(lambda: frozen(second)), missing(client)
    for group in (second, third):
        assert not frozen(group)
        assert limit_of(group) in UNLIMITED
    assert not (box.folder / "journal").exists()


SHARED = DesiredState(slots=(SlotDesire(paused=True, limit_bytes=120 * MIB, cpu_weight=1),))


def is_held(group: Cgroup) -> bool:
    return frozen(group) and limit_of(group) not in UNLIMITED


def is_free(group: Cgroup) -> bool:
    return not frozen(group) and limit_of(group) in UNLIMITED


def test_pods_that_share_a_slot_are_all_restored_whatever_is_killed(box: PodSandbox) -> None:
    with Daemon(box.config(slots=1, group_by="all")) as daemon, daemon.client() as client:
        box.start(1, "app", **APP)
        pods = [box.start(number, qos=qos) for number, qos in enumerate(Qos, 2)]

        def hold_all(groups: list[Cgroup]) -> None:
            hold(client, SHARED)
            assert wait_for(lambda: all(map(is_held, groups))), missing(client)

        hold_all(pods)
        # What runs has more room, and is frozen before its limit is lowered.
        assert wait_for(
            lambda: all(20 * MIB <= int(limit_of(group)) <= 60 * MIB for group in pods)
        ), "each has a third, about"
        assert wait_for(lambda: len(client.status().pods[0]) == 3)
        # One comes while all are paused, one goes, and the slot keeps the others.
        late = box.start(5)
        assert wait_for(lambda: is_held(late)), missing(client)
        box.stop(2)
        assert wait_for(lambda: len(client.status().pods[0]) == 3)
        left = [*pods[1:], late]
        assert all(map(frozen, left))
        # The loop is killed: the guardian restores all of them, the new one, too.
        os.kill(daemon.pids.loop or 0, signal.SIGKILL)
        assert wait_for(lambda: all(map(is_free, left)))
        assert wait_for(lambda: "pods: none" not in missing(client)), missing(client)
        hold_all(left)
        # One vanishes as guardian and loop are killed: the next start restores the others.
        loop = daemon.pids.loop
        box.stop(3)
        for pid in (daemon.pids.guardian, loop):
            os.kill(pid or 0, signal.SIGKILL)
    left = [pods[2], late]
    with Daemon(box.config(slots=1, group_by="all")):
        assert wait_for(lambda: all(map(is_free, left)))
    assert not (box.folder / "journal").exists()


def test_slots_follow_rollout_after_rollout_and_kills_of_the_loop(box: PodSandbox) -> None:
    found = soak(box, 14, kill_every=7)
    assert (len(found.bound_s), found.kills) == (14, 2)
    assert (found.left_held, found.journal_left) == (0, False)
    assert found.files <= 3
