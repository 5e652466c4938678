"""A published rule runs without budgets, and needs no lever to kill where its killing is off."""

from __future__ import annotations

import pytest

from stallward.agent.controller import Need, NodeContext, check_node
from stallward.agent.errors import ControllerError
from stallward.agent.registry import find_entry, make_controller

PUBLISHED = [
    "parties", "heracles", "senpai", "tmo", "sideloader", "oomd", "systemd-oomd", "earlyoom",
    "nohang",
]  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_it_runs_without_budgets(name: str) -> None:
    assert find_entry(name).unbudgeted


@pytest.mark.parametrize("name", ["sideloader", "oomd", "systemd-oomd"])
def test_what_only_says_whom_it_would_kill_needs_no_lever_for_it(name: str) -> None:
    context = NodeContext(zone_limit_bytes=1, slot_names=("a",), lacks={Need.TERMINATE: "because"})
    with pytest.raises(ControllerError, match=r"lacks terminate \(because\)"):
        check_node(make_controller(name), context)
    check_node(make_controller(f"{name}:kill=0"), context)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_kernel_without_stalls_leaves_those_that_look_at_none(name: str) -> None:
    stalls = {need: "no PSI" for need in Need if need.value.endswith("stall")}
    assert len(stalls) == 5
    context = NodeContext(zone_limit_bytes=1, slot_names=("a",), lacks=stalls)
    if name in {"parties", "earlyoom"}:
        check_node(make_controller(name), context)
    else:
        with pytest.raises(ControllerError, match="no PSI"):
            check_node(make_controller(name), context)
