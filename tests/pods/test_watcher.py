"""The process that follows pods: what it finds on a tree, and what it tells the loop."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fake_api import FakeApi
from pods import mirror_of, node_without_groups, pod, uid_of, written

from stallward.actuator.errors import FramesError, NodeError
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.runtime.process_start import EXIT_OPTIONS, command_line
from stallward.actuator.runtime.waiting_messages import unpack
from stallward.actuator.targets.config import KubernetesConfig, PodConfig, PodsOptions
from stallward.actuator.targets.messages import (
    SILENT_S,
    BoundPod,
    PauseBudget,
    PodsChannel,
    PodsReport,
    pack,
)
from stallward.kubernetes.identity import believed
from stallward.kubernetes.pod import parse_pod
from stallward.kubernetes.pod_file import PodFile
from stallward.kubernetes.store import PodStore
from stallward.kubernetes.watcher import CHANGES_S, PodFinder, Watcher, follow, make_source

PATIENCE_S = 20.0
BATCH = PodConfig(selector="app=batch")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return node_without_groups(tmp_path)


def make_group(paths: Paths, number: int, pids: str = "") -> str:
    name = f"kubepods/besteffort/pod{uid_of(number)}"
    (paths.cgroup / name).mkdir(parents=True)
    (paths.cgroup / name / "cgroup.procs").write_text(pids)
    return name


def options(paths: Paths, **changes: Any) -> PodsOptions:
    values: dict[str, Any] = {
        "fd": -1,
        "life_fd": -1,
        "kubernetes": KubernetesConfig(),
        "paths": paths,
        "protected": (),
        "slots": (BATCH, None, BATCH),
        "names": ("a", "b", "c"),
        **changes,
    }
    return PodsOptions(**values)


def wait_for(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_pod_has_its_slot_once_it_has_a_group_and_loses_it_with_the_group(
    paths: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    store = PodStore()
    finder = PodFinder(detect(paths), None, os.getpid())
    watcher = Watcher(options(paths), store, finder)
    store.replace([pod("batch", number=1)])
    assert watcher.step().slots == ((), (), ())
    name = make_group(paths, 1)
    assert watcher.step().slots == ((BoundPod(group=name, pod="work/batch"),), (), ())
    (paths.cgroup / name / "cgroup.procs").unlink()
    (paths.cgroup / name).rmdir()
    assert watcher.step().slots == ((), (), ())
    said = capfd.readouterr().err
    assert said.splitlines() == [
        "stallward pods: a is work/batch now",
        "stallward pods: a is no pod now",
    ]


def test_the_root_of_the_kubelet_may_be_written_as_a_path(paths: Paths) -> None:
    uid = uid_of(1)
    for root, name in (
        ("/", f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice"),
        ("/kubelet/", f"kubelet/kubepods/pod{uid}"),
    ):
        (paths.cgroup / name).mkdir(parents=True)
        (paths.cgroup / name / "cgroup.procs").touch()
        assert PodFinder(detect(paths), root, os.getpid()).group_of(pod("batch", number=1)) == name


def test_it_says_who_comes_to_and_leaves_a_slot_that_pods_share(
    paths: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    store = PodStore()
    shared = PodConfig(selector="app in (batch,more)", group_by="all")
    watcher = Watcher(
        options(paths, slots=(shared,), names=("s",)),
        store,
        PodFinder(detect(paths), None, os.getpid()),
    )
    first, second = make_group(paths, 1), make_group(paths, 2)
    store.replace([pod("batch", number=1), pod("more", number=2)])
    assert watcher.step().slots == (
        (BoundPod(group=first, pod="work/batch"), BoundPod(group=second, pod="work/more")),
    )
    store.replace([pod("more", number=2)])
    assert watcher.step().slots == ((BoundPod(group=second, pod="work/more"),),)
    assert capfd.readouterr().err.splitlines() == [
        "stallward pods: s has work/batch now",
        "stallward pods: s has work/more now",
        "stallward pods: s has work/batch no more",
    ]


def test_a_pod_brings_the_budget_of_its_probes_as_it_is_now(paths: Paths) -> None:
    store = PodStore()
    make_group(paths, 1)
    watcher = Watcher(options(paths), store, PodFinder(detect(paths), None, os.getpid()))

    def budget(**container: Any) -> PauseBudget | None:
        one = written("batch", number=1)
        one["spec"]["containers"][0].update(container)
        store.put(parse_pod(one))
        (bound,) = watcher.step().slots[0]
        return bound.pause

    assert budget() is None
    allowed = budget(livenessProbe={"timeoutSeconds": 3})
    assert allowed is not None
    assert allowed.longest_s == 2.5
    starting = budget(startupProbe={"timeoutSeconds": 3})
    assert starting is not None
    assert starting.longest_s == 0.0


def test_what_is_left_out_is_said_by_name_and_stays_bounded(paths: Paths) -> None:
    store = PodStore()
    group = make_group(paths, 1)
    watcher = Watcher(options(paths), store, PodFinder(detect(paths), None, os.getpid()))
    thieves = [
        parse_pod(written("batch", number=n, **mirror_of(uid_of(1)))) for n in range(2, 2002)
    ]
    store.replace([*thieves[:1000], pod("batch", number=1), *thieves[1000:]])
    report = watcher.step()
    assert report.slots == ((BoundPod(group=group, pod="work/batch"),), (), ())
    assert report.left_out == 2000
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = PodsChannel(ours)
    with theirs:
        theirs.send(pack(report))
        channel.read(0.0)
    (said,) = channel.faults
    assert said.startswith("pods: 2000 left out: work/batch: an annotation names the group of an")
    assert said.endswith("; ...")
    assert len(said) < 500
    channel.close()


def test_the_pod_of_the_daemon_itself_has_no_place(paths: Paths) -> None:
    store = PodStore()
    make_group(paths, 1, f"{os.getpid()}\n")
    other = make_group(paths, 2, "1\n")
    watcher = Watcher(options(paths), store, PodFinder(detect(paths), None, os.getpid()))
    store.replace([pod("batch", number=1), pod("batch", number=2)])
    assert watcher.step().slots[0] == (BoundPod(group=other, pod="work/batch"),)
    assert watcher.step().slots[2] == ()


def test_a_report_comes_as_it_was_sent_and_a_damaged_one_counts_as_none() -> None:
    report = PodsReport(
        protected=(None, BoundPod(group="g", pod="n/p")),
        slots=(
            (),
            (
                BoundPod(
                    group="h", pod="n/q", pause=PauseBudget(longest_s=0.5, shortest_run_s=0.25)
                ),
                BoundPod(group="i", pod="n/r"),
            ),
        ),
        surplus=3,
        beside=1,
        fault="down",
        left_out=2,
        odd=("n/s: odd",),
    )
    assert unpack(PodsReport, pack(report)) == report
    endless = unpack(PodsReport, pack(PodsReport(fault="x" * 9999, left_out=1, odd=("x" * 9999,))))
    assert (len(endless.fault), list(map(len, endless.odd))) == (500, [300])
    for message in (b"", b"{", b"{}x", b'{"slots": 3}', b"[" * 5000):
        with pytest.raises(FramesError):
            unpack(PodsReport, message)


def test_the_pods_that_a_report_has_no_room_for_have_no_place() -> None:
    slots = tuple(
        tuple(
            BoundPod(
                group=f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uuid4()}.slice",
                pod=f"{'n' * 63}/{number}{'p' * 250}",
                pause=PauseBudget(longest_s=0.5, shortest_run_s=0.25),
            )
            for number in range(64)
        )
        for _ in range(8)
    )
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = PodsChannel(ours)
    theirs.send(pack(PodsReport(slots=slots, surplus=2)))
    report = channel.read(0.0)
    assert report is not None
    kept = sum(map(len, report.slots))
    assert 200 < kept < 8 * 64
    assert report.surplus == 2 + 8 * 64 - kept
    assert report.slots[:3] == slots[:3]
    assert all(one == whole[: len(one)] for one, whole in zip(report.slots, slots, strict=True))
    theirs.close()
    channel.close()


def test_the_channel_keeps_what_was_said_and_says_what_it_lacks() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = PodsChannel(ours)
    assert channel.read(0.0) is None
    assert channel.faults == ("pods: none is known yet",)
    theirs.send(pack(PodsReport(slots=((BoundPod(group="g", pod="n/p"),),), surplus=2)))
    theirs.send(b"damaged")
    report = channel.read(1.0)
    assert report is not None
    assert report.slots[0] == (BoundPod(group="g", pod="n/p"),)
    assert channel.faults == ("pods: 2 match a slot and have none, as all are taken",)
    theirs.close()
    assert channel.read(1.0 + SILENT_S + 1.0) == report
    assert "silent" in channel.faults[0]
    channel.close()
    assert PodsChannel().read(0.0) is None
    assert PodsChannel().faults == ()


def test_a_file_is_followed_and_a_bad_one_leaves_what_was_known(tmp_path: Path) -> None:
    store, path = PodStore(), tmp_path / "pods.json"
    source = PodFile(path)
    source.step(store)
    assert "No such file" in store.read()[1]
    path.write_text(json.dumps({"items": [written("batch")]}))
    source.step(store)
    assert store.read()[:2] == ((pod("batch"),), "")
    for content in ("{", "{}", '{"items": 3}', "[" * 9999):
        path.write_text(content)
        source.step(store)
        pods, fault, *_ = store.read()
        assert pods == (pod("batch"),)
        assert "cannot be used" in fault
    path.write_text(json.dumps({"items": [None, written("batch"), {"metadata": {"uid": "x"}}]}))
    source.step(store)
    good, left_out = believed(store.read().pods)
    assert (good, len(left_out), store.read().fault) == ((pod("batch"),), 2, "")
    path.write_text(json.dumps({"items": []}))
    source.step(store)
    assert store.read()[:2] == ((), "")


def test_a_node_that_does_not_know_itself_or_the_server_is_refused() -> None:
    cluster = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    with pytest.raises(NodeError, match="does not run in a cluster"):
        make_source(KubernetesConfig(), {"NODE_NAME": "node-7"})
    with pytest.raises(NodeError, match="name is not known"):
        make_source(KubernetesConfig(), cluster)
    make_source(KubernetesConfig(), {**cluster, "NODE_NAME": "node-7"})
    make_source(KubernetesConfig(node="node-7"), cluster)


def test_the_process_tells_the_loop_and_ends_with_the_guardian(paths: Paths) -> None:
    api = FakeApi().start()
    api.put(written("batch", number=1))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    life_read, life_write = os.pipe()
    given = options(
        paths,
        fd=theirs.fileno(),
        life_fd=life_read,
        kubernetes=KubernetesConfig(server=api.url, node="node-7"),
    )
    module = "stallward.kubernetes.watcher"
    process = subprocess.Popen(
        command_line(module, given), pass_fds=(given.fd, given.life_fd), stderr=subprocess.PIPE
    )
    theirs.close()
    os.close(life_read)
    channel = PodsChannel(ours)
    try:
        wait_for(lambda: channel.read(0.0) is not None and not channel.faults)
        name = make_group(paths, 1)
        wait_for(lambda: (channel.read(0.0) or PodsReport()).slots[:1] != ((),))
        assert channel.report is not None
        assert channel.report.slots == ((BoundPod(group=name, pod="work/batch"),), (), ())
        api.stop()
        wait_for(lambda: channel.read(0.0) and "What is known stays" in "".join(channel.faults))
        assert channel.report.slots[0]
        os.close(life_write)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.communicate()
        channel.close()


def test_a_process_that_is_started_again_takes_no_place_away_until_it_knows_the_pods(
    paths: Paths,
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    addresses, told = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    addresses.setblocking(False)
    theirs.setblocking(False)
    life_read, life_write = os.pipe()
    channel, store = PodsChannel(ours), PodStore()
    group = make_group(paths, 1)
    before = PodsReport(slots=((BoundPod(group=group, pod="work/batch"),), (), ()))
    theirs.send(pack(before))
    assert channel.read(0.0) == before
    watcher = Watcher(options(paths), store, PodFinder(detect(paths), None, os.getpid()))
    store.fail("The API server cannot be used.")
    thread = threading.Thread(target=follow, args=(watcher, store, theirs, life_read, {0: told}))
    thread.start()
    try:
        wait_for(lambda: channel.read(1.0) and channel.faults)
        assert channel.report == before
        assert channel.faults == ("pods: The API server cannot be used.",)
        with pytest.raises(BlockingIOError):
            addresses.recv(4096)
        store.fail("")
        time.sleep(0.6)  # some steps more
        assert channel.read(2.0) == before
        store.replace([])  # the pod has ended meanwhile
        wait_for(lambda: channel.read(3.0) != before)
        assert channel.report == PodsReport(slots=((), (), ()))
        wait_for(lambda: select.select([addresses], [], [], 0.0)[0])
    finally:
        os.close(life_write)
        thread.join()
        os.close(life_read)
        channel.close()
        for one in (theirs, addresses, told):
            one.close()


def test_a_pod_that_changes_all_the_time_is_looked_at_a_few_times_a_second(paths: Paths) -> None:
    class Counted(Watcher):
        steps = 0

        def step(self) -> PodsReport:
            self.steps += 1
            return super().step()

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setblocking(False)
    life_read, life_write = os.pipe()
    channel, store = PodsChannel(ours), PodStore()
    make_group(paths, 1)
    store.replace([])
    watcher = Counted(options(paths), store, PodFinder(detect(paths), None, os.getpid()))
    thread = threading.Thread(target=follow, args=(watcher, store, theirs, life_read))
    thread.start()
    try:
        began_s = time.monotonic()
        while time.monotonic() < began_s + 2.5 * CHANGES_S:
            store.put(pod("batch", number=1))
            time.sleep(0.002)
        steps, took_s = watcher.steps, time.monotonic() - began_s
        assert steps <= 2 + took_s / CHANGES_S
        wait_for(lambda: (report := channel.read(0.0)) is not None and report.slots[0])
    finally:
        os.close(life_write)
        thread.join()
        os.close(life_read)
        channel.close()
        theirs.close()


def test_a_process_that_cannot_know_whom_to_ask_says_so(paths: Paths) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KUBERNETES_")}
    done = subprocess.run(
        command_line("stallward.kubernetes.watcher", options(paths)),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == EXIT_OPTIONS
    assert "does not run in a cluster" in done.stderr
