"""What comes from outside the twin: the exogenous description of a scenario.

Request arrivals and their cost, the background's program of work and the size of the node. PSI,
page cache, refaults and latency are never in here: the twin computes them.
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
_Fitted = Annotated[tuple[NonNegativeFloat, ...], Expect(required=True)]
"""Numbers that a fit always finds: a twin without them would be another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedProgram:
    """The protected application: what it keeps, and what a request costs and touches."""

    request_rate_per_s: NonNegativeFloat
    """On average."""
    service_s: NonNegativeFloat
    """Mean service time of a request with everything in memory and the node to itself."""
    workers: NonNegativeFloat = 1.0
    """Requests served at once."""
    rate_factors: tuple[NonNegativeFloat, ...] = (1.0,)
    """What the rate is times in each second of the node's time, 1 on average; repeats."""
    poisson: bool = True
    """Whether arrivals are random; else evenly spaced."""
    anon_pages: NonNegativeFloat = 0.0
    file_pages: NonNegativeFloat = 0.0
    cold_pages: NonNegativeFloat = 0.0
    """File pages of a large set of which each request reads a little (e.g. images)."""
    touch_anon_pages: NonNegativeFloat = 0.0
    touch_file_pages: NonNegativeFloat = 0.0
    touch_cold_pages: NonNegativeFloat = 0.0
    idle_loss_pages_per_s: NonNegativeFloat = 0.0
    """Cold pages that leave memory though nothing presses: some kernels and hosts take what
    nobody has touched for a while (DAMON's proactive reclaim:
    Documentation/admin-guide/mm/damon/reclaim.rst)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotProgram:
    """One background group: a program of work that goes on where it stopped.

    ``anon_pages`` and ``file_pages`` give the working set for each second of the program's own
    time, which passes only as fast as the group gets on; after the end it goes on from
    ``loop_from_s``. A program that was stopped and is started again begins anew.
    """

    name: str
    units_per_s: NonNegativeFloat
    """Work units per second with the node to itself."""
    anon_pages: _Fitted = (0.0,)
    file_pages: _Fitted = ()
    """Empty: none at any time."""
    loop_from_s: NonNegativeFloat = 0.0
    """Where the repeating part of the working set begins: what is before it is the start-up."""
    running: _Fitted = (1.0,)
    """1 for each second of the node's time in which somebody runs the program, else 0; repeats."""
    touch_pages_per_s: NonNegativeFloat = 250e3
    """Pages accessed per second at full speed."""
    fill_pages_per_s: NonNegativeFloat = 250e3
    """File pages read for the first time, as far as they belong to the working set."""
    stream_pages_per_s: NonNegativeFloat = 0.0
    """File pages read or written once per second at full speed."""
    stream_span_pages: Annotated[float, Expect(low=0, infinite=True)] = float("inf")
    """Distinct pages of the stream: a file that is written again and again has no more."""
    dirty_share: NonNegativeFloat = 0.0
    """Share of the stream that is written."""
    cores: NonNegativeFloat = 1.0
    floor_bytes: NonNegativeInt = DEFAULT_FLOOR_BYTES
    restarts: bool = False
    """Whether it begins anew when a process of it is terminated: a loop that runs a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exogenous:
    """A node, its protected application and its background."""

    name: str
    zone_bytes: NonNegativeInt
    swap_bytes: NonNegativeInt
    slo_ms: NonNegativeFloat
    protected: ProtectedProgram
    slots: tuple[SlotProgram, ...]
    cores: NonNegativeFloat = 2.0
    slo_quantile: NonNegativeFloat = 0.95
    """The quantile that the target is about."""
    memory_bytes: NonNegativeInt = 24 << 30
    """Of the machine, not of the zone; the kernel scores processes by it."""
    inactive_file_shares: _Fitted = (0.5,)
    """Shares of the zone's file pages on its inactive list, by which rules count what is
    available: quantiles at even levels, of ticks with the zone full. The twin keeps no lists."""

    def __post_init__(self) -> None:
        """Refuse what the twin cannot hold.

        Raises:
            TwinError: If there are too many slots or a size is not positive.
        """
        if len(self.slots) > SLOTS:
            raise TwinError(f"{self.name} has {len(self.slots)} slots, the twin holds {SLOTS}.")
        if self.zone_bytes <= 0 or self.slo_ms <= 0 or self.protected.service_s <= 0:
            raise TwinError(f"{self.name} has a size, target or service time below or at 0.")
        if not self.protected.rate_factors or min(self.protected.rate_factors) < 0.0:
            raise TwinError(f"{self.name} has requests at no rate, or at one below 0.")
        if not self.inactive_file_shares or max(self.inactive_file_shares) > 1.0:
            raise TwinError(f"{self.name} has no shares of inactive file pages, or some above 1.")
        if not 0.0 < self.slo_quantile < 1.0:
            raise TwinError(f"{self.name} has the quantile {self.slo_quantile:g}.")
        if any(len(s.file_pages) not in (0, len(s.anon_pages)) for s in self.slots) or any(
            not s.anon_pages or not s.running for s in self.slots
        ):
            raise TwinError(f"{self.name} has a slot with programs empty or of unequal length.")


def scenario_to_json(scenario: Exogenous) -> dict[str, Any]:
    """A scenario as JSON values."""
    return asdict(scenario)


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
