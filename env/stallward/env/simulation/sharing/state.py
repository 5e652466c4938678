"""What ``partition`` remembers of a twin node, and its numbers in the form for compiled code."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import TYPE_CHECKING, Final

from stallward.agent.control_law.thresholds import as_values, spans
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.sharing.caution import Danger
from stallward.agent.sharing.lending import SETTLE_S, Loan
from stallward.env.twin.physics.state import PerSlot
from stallward.env.twin.simd.layout import Arrays, Layout
from stallward.env.twin.simd.records import reader

if TYPE_CHECKING:
    Numbers = PartitionThresholds
else:
    Numbers = namedtuple("Numbers", spans(PartitionThresholds))


def numbers_of(thresholds: PartitionThresholds) -> Numbers:
    """Convert the numbers of the rule to the form that compiled code takes."""
    values = as_values(thresholds)
    return Numbers(**{name: values[name] for name in spans(PartitionThresholds)})


class Estimates(Danger):
    """What is known of the application and the groups from earlier ticks."""

    time_s: float
    """The time of the tick before; NaN before the first."""
    demand_bytes: float
    group_stalled_us: PerSlot
    """The total stall of each group on memory and disk in the tick before; NaN before the
    first."""
    group_refaults: PerSlot
    """The total of its refaults in the tick before."""
    group_stall_share: PerSlot
    group_refaults_per_s: PerSlot
    short_s: PerSlot
    """For how long it has been short of memory."""
    thrashed_s: PerSlot
    """When it was last seen to thrash."""


class Holdings(Loan):
    """What the rule holds back and gives, and whose turn it is."""

    keeps_anon: float
    """1 while the application's anonymous pages are swapped last, else 0."""
    near_s: float
    """When the groups last came near the room."""
    read_back_s: float
    """When swapped pages were last read back."""
    place: PerSlot
    """The place in the order of turns: later ones are larger; 0 for none."""
    running: PerSlot
    """1 for the first group that has the whole, 2 for the second, and so on; 0 for none."""
    fitted_s: PerSlot
    """When the whole of it last fitted with all others at their least."""
    last_place: float
    turn_since_s: float


class Wants:
    """What each group wants in this tick, and what it gets."""

    want: PerSlot
    """Bytes that it holds, with headroom."""
    least: PerSlot
    """Bytes that it gets in any case."""
    whole: PerSlot
    """1 if it can use only the whole, else 0."""
    held_back: PerSlot
    """1 if it waits by a set-point, else 0."""
    partial: PerSlot
    """1 if it can use a part, else 0."""
    weight: PerSlot
    fitting: PerSlot
    """The rank of each group that has the whole if the room is divided now; 0 for none."""
    share: PerSlot
    """Bytes that it gets."""
    waiting: PerSlot
    """1 if it waits, else 0."""


class Sharing(Estimates, Holdings, Wants):
    """The state of the rule on one node."""


SHARING: Final = Layout(Sharing)
sharing_at: Final = reader(Sharing, SHARING)


def begin(states: Arrays, numbers: Numbers) -> None:
    """Set the state of nodes whose episodes begin; nothing is known of them."""
    for name in SHARING.fields:
        setattr(states, name, 0.0)
    states.keeps_anon = 1.0
    states.time_s = states.mean_ratio = states.latency_ratio = math.nan
    states.lent_ceiling = numbers.most_lent_share
    states.since_cut_s = SETTLE_S
    states.near_s = states.read_back_s = states.thrashed_s = states.fitted_s = -math.inf
