"""A published rule is refused where a lever or a signal is missing that it is made of."""

from __future__ import annotations

import pytest

from stallward.agent.controller import Need, NodeContext, check_node
from stallward.agent.errors import ControllerError
from stallward.agent.registry import find_entry, make_controller


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("parties", {Need.CPU_MAX, Need.LIMIT}),
        ("heracles", {Need.CPU_MAX, Need.LIMIT, Need.PAUSE}),
        ("senpai", {Need.LIMIT, Need.MEMORY_STALL}),
        ("tmo", {Need.RECLAIM, Need.MEMORY_STALL}),
        ("sideloader", {Need.CPU_MAX, Need.PAUSE, Need.TERMINATE, Need.MEMORY_STALL}),
        ("oomd", {Need.TERMINATE, Need.MEMORY_STALL}),
        ("systemd-oomd", {Need.TERMINATE, Need.MEMORY_STALL}),
        ("earlyoom", set()),
        ("nohang", {Need.MEMORY_STALL}),
    ],
)
def test_what_it_needs_is_named_and_it_runs_without_budgets(name: str, needs: set[Need]) -> None:
    assert find_entry(name).unbudgeted
    controller = make_controller(name)
    for need in Need:
        context = NodeContext(zone_limit_bytes=1, slot_names=("a",), lacks={need: "because"})
        if need in needs:
            with pytest.raises(ControllerError, match=rf"lacks {need} \(because\)"):
                check_node(controller, context)
        else:
            check_node(controller, context)
