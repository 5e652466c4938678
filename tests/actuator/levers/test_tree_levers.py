"""The levers of a process tree act on its members, which a pid alone does not tell."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import cast

import pytest

from stallward.actuator.kernel.process_table import read_seen
from stallward.actuator.kernel.process_trees import ProcessTree
from stallward.actuator.levers.base.lever import ExemptProcesses
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.process.stop import TerminateLever
from stallward.actuator.levers.tree_slot import TreeSlot
from stallward.agent.desired import DesiredState, SlotDesire

PROC = Path("/proc")
END = DesiredState(slots=(SlotDesire(terminated=True),))


@pytest.mark.parametrize("reused", [False, True])
def test_only_the_member_itself_is_asked_to_end(reused: bool) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        seen = read_seen(PROC, process.pid)
        assert seen is not None
        seen.start_time_ticks -= reused
        tree = ProcessTree("bg", members={process.pid: seen})
        slot = TreeSlot(0, tree, PROC, cast("Originals", None), ExemptProcesses())
        assert slot._holds(process.pid) is not reused
        assert not slot._holds(os.getpid())
        (lever,) = [one for one in slot.processes() if isinstance(one, TerminateLever)]
        lever.apply(END, 0.0)
        deadline_s = time.monotonic() + (0.2 if reused else 20.0)
        while process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert (process.poll() is None) is reused
        lever.apply(DesiredState(), 0.0)
        process.kill()
