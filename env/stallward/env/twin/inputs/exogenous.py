"""The exogenous description of a scenario: everything that the twin does not compute.

It has the arrivals and the cost of requests, the background's programs of work and the size of the
node. It never has PSI, page cache, refaults or latency, which the twin computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from stallward.agent.desired import DEFAULT_FLOOR_BYTES, SLOTS
from stallward.agent.errors import SchemaError
from stallward.agent.schema.describe import Expect
from stallward.agent.schema.read import NonNegativeFloat, NonNegativeInt, read
from stallward.env.errors import TwinError

PAGE_BYTES: Final = 4096
MOST_APPLICATIONS: Final = 4
"""The most protected applications of a twin's node."""
_Fitted = Annotated[tuple[NonNegativeFloat, ...], Expect(required=True)]
"""Numbers that every fit writes. They are required: with a default the twin would be another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedProgram:
    """The protected application: its pages, and the cost and touches of a request."""

    request_rate_per_s: NonNegativeFloat
    """The mean rate of requests."""
    service_s: NonNegativeFloat
    """The mean service time of a request, with everything in memory and the node to itself."""
    workers: NonNegativeFloat = 1.0
    """How many requests are served at once."""
    rate_factors: tuple[NonNegativeFloat, ...] = (1.0,)
    """The factor on the rate in each second of the node's time; the mean is 1. It repeats."""
    poisson: bool = True
    """Whether arrivals are random; else they are evenly spaced."""
    anon_pages: NonNegativeFloat = 0.0
    file_pages: NonNegativeFloat = 0.0
    cold_pages: NonNegativeFloat = 0.0
    """File pages of a large set, such as images, of which each request reads a few."""
    touch_anon_pages: NonNegativeFloat = 0.0
    touch_file_pages: NonNegativeFloat = 0.0
    touch_cold_pages: NonNegativeFloat = 0.0
    idle_loss_pages_per_s: NonNegativeFloat = 0.0
    """Cold pages that leave memory without pressure. Some kernels and hosts reclaim pages that
    have not been touched for a while (DAMON's proactive reclaim:
    Documentation/admin-guide/mm/damon/reclaim.rst)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherApplication:
    """A further protected application of a node."""

    name: str
    slo_ms: NonNegativeFloat
    """Its own latency target."""
    protected: ProtectedProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotProgram:
    """One background group and its program of work.

    The program has its own time, which passes in proportion to its progress. ``anon_pages`` and
    ``file_pages`` are the working set in each second of that time; after the last one it continues
    at ``loop_from_s``. A paused program continues where it was. One that was stopped and is
    started again begins anew.
    """

    name: str
    units_per_s: NonNegativeFloat
    """Work units per second with the node to itself."""
    anon_pages: _Fitted = (0.0,)
    file_pages: _Fitted = ()
    """Empty if the program never has any."""
    loop_from_s: NonNegativeFloat = 0.0
    """Where the repeated part of the working set begins; before it is the start-up."""
    running: _Fitted = (1.0,)
    """The schedule: 1 for each second of the node's time in which the program runs, else 0. It
    repeats."""
    touch_pages_per_s: NonNegativeFloat = 250e3
    """Pages that it touches per second at full speed."""
    fill_pages_per_s: NonNegativeFloat = 250e3
    """File pages of the working set that it reads for the first time, per second."""
    stream_pages_per_s: NonNegativeFloat = 0.0
    """File pages of a stream, each read or written once, per second at full speed."""
    stream_span_pages: Annotated[float, Expect(low=0, infinite=True)] = float("inf")
    """Distinct pages of the stream; finite for a file that is written again and again."""
    dirty_share: NonNegativeFloat = 0.0
    """The share of the stream that is written."""
    burst_pages: NonNegativeFloat = 0.0
    """File pages that it reads again all at once, as a sort does when it merges, as far as they
    are not in memory. Neither part of the working set nor of the stream."""
    burst_s: NonNegativeFloat = 1.0
    """How long that takes at full speed."""
    burst_every_s: NonNegativeFloat = 1.0
    """The time from the start of a burst to the next, in the program's own time."""
    cores: NonNegativeFloat = 1.0
    floor_bytes: NonNegativeInt = DEFAULT_FLOOR_BYTES
    restarts: bool = False
    """Whether a terminated program begins anew, because a loop runs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exogenous:
    """The exogenous description of a node, its protected application and its background."""

    name: str
    zone_bytes: NonNegativeInt
    swap_bytes: NonNegativeInt
    slo_ms: NonNegativeFloat
    protected: ProtectedProgram
    slots: tuple[SlotProgram, ...]
    protected_name: str = "protected"
    """The name of the application, where there are several."""
    others: tuple[OtherApplication, ...] = ()
    """The further applications; empty where there is one."""
    cores: NonNegativeFloat = 2.0
    slo_quantile: NonNegativeFloat = 0.95
    """The quantile that the target is for."""
    memory_bytes: NonNegativeInt = 24 << 30
    """The memory of the machine, not of the zone. The kernel's OOM score refers to it."""
    inactive_file_shares: _Fitted = (0.5,)
    """The share of the zone's file pages that is on the inactive list, which rules count as
    available. The twin has no such lists, so these are quantiles at even levels, of recorded ticks
    with a full zone."""

    def __post_init__(self) -> None:
        """Refuse a description that the twin cannot simulate.

        Raises:
            TwinError: If it has too many slots or applications, a value out of range, or unusable
                programs.
        """
        if len(self.slots) > SLOTS:
            raise TwinError(f"{self.name} has {len(self.slots)} slots, the twin holds {SLOTS}.")
        if 1 + len(self.others) > MOST_APPLICATIONS:
            raise TwinError(
                f"{self.name} has {1 + len(self.others)} protected applications, the twin holds "
                f"{MOST_APPLICATIONS}."
            )
        targets_ms = (self.slo_ms, *(other.slo_ms for other in self.others))
        programs = (self.protected, *(other.protected for other in self.others))
        if min(self.zone_bytes, *targets_ms, *(one.service_s for one in programs)) <= 0:
            raise TwinError(f"{self.name} has a size, target or service time below or at 0.")
        if any(not one.rate_factors or min(one.rate_factors) < 0.0 for one in programs):
            raise TwinError(f"{self.name} has requests at no rate, or at one below 0.")
        if not self.inactive_file_shares or max(self.inactive_file_shares) > 1.0:
            raise TwinError(f"{self.name} has no shares of inactive file pages, or some above 1.")
        if not 0.0 < self.slo_quantile < 1.0:
            raise TwinError(f"{self.name} has the quantile {self.slo_quantile:g}.")
        if any(s.burst_pages > 0.0 and not 0.0 < s.burst_s <= s.burst_every_s for s in self.slots):
            raise TwinError(f"{self.name} has bursts of reads that are longer than their period.")
        if any(len(s.file_pages) not in (0, len(s.anon_pages)) for s in self.slots) or any(
            not s.anon_pages or not s.running for s in self.slots
        ):
            raise TwinError(f"{self.name} has a slot with programs empty or of unequal length.")


def scenario_to_json(scenario: Exogenous) -> dict[str, Any]:
    """Convert a scenario to JSON values; what several applications have, only where there are."""
    values = asdict(scenario)
    if not scenario.others:
        del values["protected_name"], values["others"]
    return values


def scenario_from_json(data: Mapping[str, Any]) -> Exogenous:
    """The inverse of :func:`scenario_to_json`.

    Raises:
        TwinError: If a field is missing, unknown or of the wrong type.
    """
    try:
        return read(Exogenous, data, "scenario")
    except SchemaError as error:
        raise TwinError(
            f"A twin's scenario does not fit this version: {error}",
            next_step="Fit the twin again with `stallward fit`.",
        ) from error
