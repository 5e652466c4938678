"""The process that follows the pods of the node, so that the loop need not.

The guardian starts ``python -m stallward.kubernetes.watcher`` when the configuration
names pods. Nothing in a tick waits for the network then, and a server that hangs delays nothing.
It tells the loop which pod has which place: at once when that changes, and once a second, so that
a loop that was started again knows. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Final

from stallward.actuator.errors import ActuatorError, NodeError
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.latency.prometheus.pod_address import PodAddress
from stallward.actuator.runtime import waiting_messages
from stallward.actuator.runtime.process_setup import lock_memory
from stallward.actuator.runtime.process_start import EXIT_OPTIONS, run_process
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.targets.config import KubernetesConfig, PodsOptions, keys_of
from stallward.actuator.targets.kubelet_groups import find_pod_group
from stallward.actuator.targets.messages import MOST_ODD, BoundPod, PodsReport, pack
from stallward.kubernetes.assign import Assignment, Placed, assign
from stallward.kubernetes.identity import believed
from stallward.kubernetes.pod import Pod
from stallward.kubernetes.server import server_of
from stallward.kubernetes.store import PodSource, PodStore

STEP_S: Final = 0.25
"""How often the cgroups are looked at: one appears after its pod is known, and vanishes before."""
CHANGES_S: Final = 0.2
"""Changes that follow one another sooner are taken together: each takes a look at all pods, and a
tenant can change its own pod all the time."""
SEND_S: Final = 1.0
_NAME: Final = "pods"


class PodFinder:
    """Finds the cgroups of pods.

    Args:
        hierarchy: The node's cgroup hierarchies.
        parent: The group of the kubelet's ``--cgroup-root``; the usual ones by default.
        own_pid: A process whose pod is never given a place: the daemon's own.
    """

    def __init__(self, hierarchy: Hierarchy, parent: str | None, own_pid: int) -> None:
        self._hierarchy = hierarchy
        self._roots = tuple(map(str, hierarchy.roots))
        self._parent = None if parent is None else parent.strip("/")
        self._own_pid = own_pid
        self._known: dict[str, str] = {}
        self._own: set[str] = set()

    def group_of(self, pod: Pod) -> str | None:
        """Return the cgroup of a pod; ``None`` if there is none that can be used."""
        name = self._known.get(pod.uid)
        if name is not None and self._exists(name):
            return None if name in self._own else name
        self._known.pop(pod.uid, None)
        name = find_pod_group(pod.uid, self._exists, self._parent)
        if name is None:
            return None
        try:
            own = bool(self._hierarchy.group(name).among({self._own_pid}))
        except ActuatorError:
            return None  # it is just made or removed: it is looked at again
        self._known[pod.uid] = name
        if own:
            self._own.add(name)
        return None if own else name

    def keep_only(self, uids: frozenset[str]) -> None:
        """Forget pods that are gone."""
        self._known = {uid: name for uid, name in self._known.items() if uid in uids}
        self._own &= set(self._known.values())

    def _exists(self, name: str) -> bool:
        # Asked of every pod, four times a second: making a Cgroup would take most of the time.
        return bool(self._roots) and all(os.path.isdir(f"{root}/{name}") for root in self._roots)  # noqa: PTH112


class Watcher:
    """Tells which pod has which place.

    Args:
        options: The options of the process.
        store: The pods.
        finder: Finds their cgroups.
    """

    def __init__(self, options: PodsOptions, store: PodStore, finder: PodFinder) -> None:
        self._options = options
        self._store = store
        self._finder = finder
        self._assignment = Assignment()
        self._fault = ""

    def address(self, application: int = 0) -> PodAddress:
        """Where the pod of a protected application is, by the last step."""
        protected = self._assignment.protected
        placed = protected[application] if application < len(protected) else None
        if placed is None:
            return PodAddress(sent_s=time.monotonic())
        pod = placed.pod
        return PodAddress(sent_s=time.monotonic(), uid=pod.key, address=pod.address)

    def step(self) -> PodsReport:
        """Assign the pods that are known now, and say what has changed."""
        options, before = self._options, self._assignment
        known, fault, _, listed = self._store.read()
        pods, left_out = believed(known)
        self._finder.keep_only(frozenset(pod.uid for pod in pods))
        now = assign(pods, self._finder.group_of, options.protected, options.slots, before)
        self._assignment = now
        _say_changes(options.names, before, now)
        if fault != self._fault:
            self._fault = fault
            say(fault or "the pods are known again", _NAME)
        return PodsReport(
            protected=tuple(None if one is None else _bound(one) for one in now.protected),
            slots=tuple(tuple(map(_bound, place)) for place in now.slots),
            surplus=now.surplus,
            beside=now.beside,
            fault=fault,
            left_out=len(left_out),
            odd=left_out[:MOST_ODD],
            known=listed,
        )


def _say_changes(names: tuple[str, ...], before: Assignment, now: Assignment) -> None:
    """Say which pods have got or lost their place."""
    news = (*_each(now.protected), *now.slots)
    olds = (*_each(before.protected), *before.slots) or ((),) * len(news)
    for name, old, new in zip(names, olds, news, strict=True):
        if len(old) <= 1 and len(new) <= 1:
            if _keys(old) != _keys(new):
                say(f"{name} is {new[0].pod if new else 'no pod'} now", _NAME)
            continue
        for placed in new:
            if placed.pod.key not in _keys(old):
                say(f"{name} has {placed.pod} now", _NAME)
        for placed in old:
            if placed.pod.key not in _keys(new):
                say(f"{name} has {placed.pod} no more", _NAME)


def _each(protected: tuple[Placed | None, ...]) -> tuple[tuple[Placed, ...], ...]:
    return tuple(() if one is None else (one,) for one in protected)


def _keys(place: tuple[Placed, ...]) -> tuple[str, ...]:
    return tuple(placed.pod.key for placed in place)


def _bound(placed: Placed) -> BoundPod:
    return BoundPod(group=placed.group, pod=str(placed.pod), pause=placed.pod.pause)


def make_source(config: KubernetesConfig, environment: Mapping[str, str]) -> PodSource:
    """Make the source that the configuration names.

    Raises:
        NodeError: If it is not known what to ask, or whom.
    """
    if config.path is not None:
        from stallward.kubernetes.pod_file import PodFile  # noqa: PLC0415

        return PodFile(config.path)
    server, node = server_of(config, environment), config.node or environment.get("NODE_NAME")
    if config.source == "kubelet":
        if server is None:
            raise NodeError(
                "The configuration names pods, but the address of the kubelet is not known.",
                next_step="Set NODE_IP from status.hostIP, or server under [kubernetes].",
            )
        from stallward.kubernetes.kubelet import KubeletPods  # noqa: PLC0415 - OpenSSL is 4 MiB

        return KubeletPods(config, server)
    if server is None:
        raise NodeError(
            "The configuration names pods, but the daemon does not run in a cluster "
            "(no KUBERNETES_SERVICE_HOST).",
            next_step='Write server = "https://HOST:PORT" under [kubernetes], or source = "file".',
        )
    if not node:
        raise NodeError(
            "The configuration names pods, but the node's name is not known.",
            next_step="Set NODE_NAME from spec.nodeName, or node under [kubernetes].",
        )
    from stallward.kubernetes.api import ApiPods  # noqa: PLC0415 - OpenSSL is 4 MiB

    return ApiPods(config, server, node)


def main(options: PodsOptions) -> int:
    """The process; returns its exit status."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        source = make_source(options.kubernetes, os.environ)
    except NodeError as error:
        say(str(error), _NAME)
        return EXIT_OPTIONS
    connection = socket.socket(fileno=options.fd)
    connection.setblocking(False)
    lock_memory()
    store = PodStore(keys_of((*options.protected, *options.slots)))
    ended = threading.Event()
    finder = PodFinder(detect(options.paths), options.kubernetes.cgroup_parent, os.getpid())
    watcher = Watcher(options, store, finder)
    threading.Thread(target=source.run, args=(store, ended), daemon=True).start()
    fds = options.address_fds
    addresses = {i: socket.socket(fileno=fd) for i, fd in enumerate(fds) if fd >= 0}
    try:
        follow(watcher, store, connection, options.life_fd, addresses)
    finally:
        ended.set()
    return 0


def follow(
    watcher: Watcher,
    store: PodStore,
    connection: socket.socket,
    life_fd: int,
    addresses: Mapping[int, socket.socket] | None = None,
) -> None:
    """Send reports until the other end of ``life_fd`` is closed.

    Args:
        watcher: Makes the reports.
        store: The pods.
        connection: The socket to the loop.
        life_fd: A descriptor.
        addresses: The sockets to which the addresses of the protected pods are sent where they
            are needed, by application.
    """
    life = select.poll()
    life.register(life_fd, select.POLLIN | select.POLLHUP)
    last, left, taken_s = b"", 0, -CHANGES_S
    while not life.poll(0):
        version = store.read().version
        report = watcher.step()
        message = pack(report)
        if message != last or left <= 0:
            try:
                connection.send(message)
                last, left = message, round(SEND_S / STEP_S)
            except OSError:  # the socket is full, or there is no loop: it is sent again
                last = b""
        # Before the first list it is not known which pod it is; what was sent before stays then.
        wanted = (addresses or {}) if report.known else {}
        for application, connected in wanted.items():
            with contextlib.suppress(OSError):  # full: nobody reads, and it is sent again
                connected.send(
                    waiting_messages.pack(watcher.address(application)), socket.MSG_DONTWAIT
                )
        left -= 1
        if store.wait(version, STEP_S):
            time.sleep(max(taken_s + CHANGES_S - time.monotonic(), 0.0))
            taken_s = time.monotonic()


if __name__ == "__main__":
    sys.exit(run_process("pods", PodsOptions, main))
