"""What of the zone belongs neither to the application nor to the background."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stallward.agent.desired import MIB
from stallward.agent.sample import UNBOUND, GroupSample, NodeSample, Sample
from stallward.agent.sharing.others import FORGET_S, Others, others_bytes

ZONE = 1_000 * MIB


def _group(name: str, usage_mib: int, file_mib: int) -> GroupSample:
    return GroupSample(name=name, memory_usage_bytes=usage_mib * MIB, file_bytes=file_mib * MIB)


def _sample(zone: GroupSample, node: NodeSample | None = None) -> Sample:
    return Sample(
        sequence=1,
        time_s=1.0,
        node=node or NodeSample(),
        zone=zone,
        protected=_group("app", 300, 100),
        slots=(_group("job", 200, 150),),
    )


def test_of_a_group_with_a_limit_it_is_what_its_groups_do_not_hold() -> None:
    """The page cache counts for nothing, whoever filled it: it can be dropped."""
    zone = _group("zone", 900, 500)
    assert others_bytes(_sample(zone), ZONE) == (400 - 200 - 50) * MIB
    alone = _group("zone", 500, 250)
    assert others_bytes(_sample(alone), ZONE) == 0


def test_of_a_machine_it_is_what_is_not_available_and_not_theirs() -> None:
    """Compressed swap is in no counter of pages, but what it takes is not available."""
    machine = _sample(
        _group("/", 950, 100),
        NodeSample(memory_total_bytes=ZONE, memory_available_bytes=400 * MIB),
    )
    assert others_bytes(machine, ZONE) == (600 - 200 - 50) * MIB


def test_a_few_pages_are_how_the_kernel_counts() -> None:
    zone = replace(_group("zone", 500, 250), memory_usage_bytes=500 * MIB + 4096)
    assert others_bytes(_sample(zone), ZONE) == 0


def test_a_pod_that_is_not_there_holds_nothing() -> None:
    sample = replace(_sample(_group("zone", 300, 100)), slots=(GroupSample(name=f"{UNBOUND}pod"),))
    assert others_bytes(sample, ZONE) == 0


@pytest.mark.parametrize("unknown", ["zone", "slot"])
def test_where_a_sample_does_not_tell_it_stays_as_it_was(unknown: str) -> None:
    others = Others()
    sample = _sample(_group("zone", 900, 500))
    assert others.update(sample, ZONE, 0.1) == 150 * MIB
    if unknown == "zone":
        silent = replace(sample, zone=GroupSample(name="zone"))
    else:
        silent = replace(sample, slots=(GroupSample(name="job"),))
    assert others_bytes(silent, ZONE) is None
    assert others.update(silent, ZONE, 0.1) == 150 * MIB


def test_more_is_believed_at_once_and_less_slowly() -> None:
    others = Others()
    others.update(_sample(_group("zone", 900, 500)), ZONE, 0.1)
    less = _sample(_group("zone", 750, 500))
    assert others.update(less, ZONE, 0.1) > 148 * MIB
    for _ in range(round(5 * FORGET_S / 0.1)):
        others.update(less, ZONE, 0.1)
    assert others.bytes < 2 * MIB
    assert others.update(_sample(_group("zone", 800, 500)), ZONE, 0.1) == 50 * MIB
