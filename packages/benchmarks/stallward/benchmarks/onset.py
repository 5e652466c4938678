"""The time from the first stall to the pause, measured from outside the daemon.

The daemon runs a policy that pauses everything in the tick after the protected group stalled, and
releases everything when it no longer stalls. So the time covers the whole path: sensors,
inference, guard and levers. A thread of this process polls the kernel's files every 2 ms. The
*onset* is the time when the protected group has stalled for a millisecond of the last 200, after a
calm period in which everything ran. The *pause* is the time when the kernel reports every
background group as frozen.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from stallward.agent.desired import ACTION_SIZES, SLOTS
from stallward.agent.observation.encoder import BASIC, schema, schema_hash
from stallward.evaluation.blocks.live import activate

if TYPE_CHECKING:
    from stallward.actuator.client.daemon_process import Daemon
    from stallward.evaluation.blocks.live import LiveSession

_POLL_S: Final = 0.002
_CALM_S: Final = 0.2
_ONSET_US: Final = 1000
_GIVE_UP_S: Final = 5.0
_THRESHOLD_SHARE: Final = 0.0015
"""Share of a tick that the protected group must stall for the policy to pause.

It is below the stall of an onset: a millisecond is 0.2 % of the longest tick, half a second.
"""


def write_reflex_policy(path: Path) -> None:
    """Write a policy that pauses every group while the protected one stalls."""
    index = BASIC.names.index("protected_psi_memory_some_share")
    selection = np.zeros((BASIC.size, 1), dtype=np.float32)
    selection[index] = 1.0
    pause_all = np.array([[1, 0] * SLOTS + [0]], dtype=np.int64)
    constants = [
        helper.make_tensor("selection", TensorProto.FLOAT, selection.shape, selection.ravel()),
        helper.make_tensor("threshold", TensorProto.FLOAT, (1, 1), [_THRESHOLD_SHARE]),
        helper.make_tensor("pause_all", TensorProto.INT64, pause_all.shape, pause_all.ravel()),
    ]
    nodes = [
        helper.make_node("MatMul", ["observation", "selection"], ["logits"]),
        helper.make_node("Greater", ["logits", "threshold"], ["stalled"]),
        helper.make_node("Cast", ["stalled"], ["stalled_as_int"], to=TensorProto.INT64),
        helper.make_node("Mul", ["stalled_as_int", "pause_all"], ["action"]),
    ]
    shape = [1, BASIC.size]
    graph = helper.make_graph(
        nodes,
        "reflex",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor_value_info("action", TensorProto.INT64, [1, len(ACTION_SIZES)]),
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1]),
        ],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for key, value in {
        "schema_hash": schema_hash(),
        "schema": json.dumps(schema()),
        "ticks_per_action": "1",
        "observation_low": json.dumps([-1e6] * BASIC.size),
        "observation_high": json.dumps([1e6] * BASIC.size),
        "ood_limit": "1.0",
        "provenance": json.dumps({"made_by": "stallward bench"}),
    }.items():
        model.metadata_props.add(key=f"stallward.{key}", value=value)
    onnx.save(model, str(path))


@dataclass(slots=True)
class OnsetDetector:
    """Finds delays from onset to pause in successive readings. Pure."""

    delays_ms: list[float] = field(default_factory=list)
    """The delays so far; if a pause never came, the delay is the time waited for it."""
    _calm: deque[tuple[float, int]] = field(default_factory=deque)
    """The readings of the last calm period: time and cumulative stall."""
    _onset_s: float | None = None

    def see(self, now_s: float, stalled_us: int, *, running: bool, frozen: bool) -> None:
        """Take one reading.

        Args:
            now_s: Monotonic time.
            stalled_us: Cumulative stall of the protected group.
            running: Whether no background group is frozen.
            frozen: Whether all background groups are frozen.
        """
        if self._onset_s is not None:
            waited_s = now_s - self._onset_s
            if frozen or waited_s > _GIVE_UP_S:
                self.delays_ms.append(1e3 * waited_s)
                self._onset_s = None
            return
        if not running:
            self._calm.clear()
            return
        self._calm.append((now_s, stalled_us))
        while len(self._calm) > 1 and self._calm[1][0] <= now_s - _CALM_S:
            self._calm.popleft()  # a trickle never adds up to an onset
        since_s, before_us = self._calm[0]
        if stalled_us - before_us < _ONSET_US:
            return
        self._calm.clear()
        if now_s - since_s >= _CALM_S:
            self._onset_s = now_s
        else:
            self._calm.append((now_s, stalled_us))


class OnsetProbe:
    """Runs the policy on a block's daemon, and watches the kernel's files in a thread."""

    def __init__(self) -> None:
        self._detector = OnsetDetector()
        self._stop = Event()
        self._thread: Thread | None = None

    @property
    def delays_ms(self) -> list[float]:
        """The delays from onset to pause."""
        return self._detector.delays_ms

    def starter(self, session: LiveSession) -> Callable[[Daemon], None]:
        """A function that starts the probe, to be called with the block's daemon."""

        def start(daemon: Daemon) -> None:
            with tempfile.TemporaryDirectory(dir=session.scratch) as folder:
                policy = Path(folder) / "reflex.onnx"
                write_reflex_policy(policy)
                with daemon.client() as client:
                    activate(client, policy)
            self._thread = Thread(target=self._watch, args=(session,), daemon=True)
            self._thread.start()

        return start

    def finish(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, session: LiveSession) -> None:
        sandbox = session.sandbox
        unified = sandbox.protected.unified_dir
        slots = [group.unified_dir for group in sandbox.slots]
        if unified is None or None in slots:
            return
        events = [folder / "cgroup.events" for folder in slots if folder is not None]
        pressure = unified / "memory.pressure"
        while not self._stop.wait(_POLL_S):
            try:
                some = pressure.read_text("ascii").splitlines()[0]
                frozen = ["frozen 1" in file.read_text("ascii") for file in events]
            except OSError:
                return  # the sandbox is gone
            self._detector.see(
                time.monotonic(),
                int(some.rpartition("total=")[2]),
                running=not any(frozen),
                frozen=all(frozen),
            )
