"""The parameters of the twin, which are fitted for one host and application.

Each has a unit in its name, a default of the right order for a machine with an NVMe disk, and a
range that a fit searches. A fitted twin is a weighted set of parameters: a distribution, not a
point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import SLOTS
from stallward.env.errors import TwinError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinParameters:
    """One set of parameters; pages are 4096 bytes."""

    read_latency_s: float = 90e-6
    """The time of one random read on an idle device."""
    read_pages_per_s: float = 250e3
    write_pages_per_s: float = 150e3
    read_queue_share: float = 0.1
    """The share of the device's queue that a read waits for, as reads overtake writes."""
    crowded_read_s: float = 200e-6
    """How long a read waits for other reads at a device that is busy half the time."""
    device_sigma: float = 0.25
    """Standard deviation of the logarithm of the device's speed from tick to tick."""
    device_stalls_per_s: float = 0.0
    """How often a device that others keep busy all the time stands still."""
    device_stall_s: float = 0.2
    """How long it serves no read then."""
    reclaim_s_per_page: float = 1.5e-6
    """The time that direct reclaim of a page takes in the task that needs it."""
    squeeze_pages_per_s: float = 150e3
    """How fast pages of a group over its limit are reclaimed."""
    coldness_exponent: float = 1.0
    """With 0, reclaim takes from all pools by size; with a large value, it takes the least
    recently used pages first."""
    coldness_tau_s: float = 1.0
    """A page that is touched once in this time is about half as cold as an untouched one."""
    anon_weight: float = 1.0
    """Preference for anonymous over file pages, in addition to swappiness."""
    swap_write_share: float = 0.8
    """The share of evicted anonymous pages that must be written; the others are clean in swap."""
    swap_readahead_pages: float = 4.0
    swap_read_around_pages: float = 1.0
    """Pages that come back from swap for each missing page that the application touches."""
    file_readahead_pages: float = 8.0
    read_around_pages: float = 2.0
    """Pages that the device reads for each missing file page of a background program."""
    protected_miss_exponent: float = 1.0
    """See :func:`stallward.env.twin.physics.pages.miss_probability`."""
    slot0_miss_exponent: float = 0.8
    slot1_miss_exponent: float = 0.8
    slot2_miss_exponent: float = 0.8
    slot3_miss_exponent: float = 0.8
    """The exponent of each background program: one scans where another reads at random."""
    slot0_touch_scale: float = 1.0
    slot1_touch_scale: float = 1.0
    slot2_touch_scale: float = 1.0
    slot3_touch_scale: float = 1.0
    """Factor on the touches of each background program at full speed."""
    service_scale: float = 1.0
    """Factor on the application's service time, which was measured alone."""
    service_sigma: float = 0.12
    anon_fault_cpu_s: float = 10e-6
    """CPU time of the kernel for one page that it swaps in, with making room for it."""
    file_fault_cpu_s: float = 2e-6
    """CPU time of the kernel for one page that it reads from a file."""
    cpu_slowdown: float = 0.3
    """Relative growth of the service time when the background keeps all cores busy. It is below 0
    where CPUs that have been idle are slow to wake."""
    cpu_wait_share: float = 0.0
    """The share of requests that wait for a CPU when the background keeps all cores busy."""
    cpu_wait_s: float = 2e-3
    """How long a request waits for a CPU at most. The scheduler interrupts a program that has run
    for its slice of a few milliseconds (Documentation/scheduler/sched-eevdf.rst)."""
    cpu_light_share: float = 0.3
    """The part of these waits that is left if the background's CPU weight is 1 instead of 100."""
    hiccup_share: float = 0.005
    """The share of requests that are delayed by something outside of the model."""
    hiccup_factor: float = 2.0
    """The factor on the service time of these requests."""
    touch_scale: float = 1.0
    """Factor on the pages that a request touches, except cold ones."""
    cold_touch_scale: float = 1.0
    """Factor on the cold pages that a request touches. Recordings show how fast cold pages are
    read, but not how often those already in memory are touched."""
    fault_sigma: float = 0.5
    """Standard deviation of the logarithm of a request's wait for pages."""
    psi_file_scale: float = 0.5
    """Memory stall that PSI counts for each second of waiting for file pages."""
    psi_anon_scale: float = 0.1
    """Memory stall that PSI counts for each second of waiting for anonymous pages. The kernel
    counts only pages that were in the working set when evicted."""
    psi_io_scale: float = 0.3
    """I/O stall that PSI counts for each second of waiting."""
    pause_delay_s: float = 0.01
    limit_delay_s: float = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The range in which a fit searches one parameter."""

    low: float
    high: float
    logarithmic: bool = True


RANGES: Final[Mapping[str, Range]] = {
    "read_latency_s": Range(low=20e-6, high=2e-3),
    "read_pages_per_s": Range(low=2e4, high=1e6),
    "write_pages_per_s": Range(low=1e4, high=1e6),
    "read_queue_share": Range(low=0.005, high=1.0),
    "crowded_read_s": Range(low=1e-6, high=2e-2),
    "device_sigma": Range(low=0.02, high=1.0),
    "device_stalls_per_s": Range(low=0.0, high=1.0, logarithmic=False),
    "device_stall_s": Range(low=0.02, high=1.0),
    "reclaim_s_per_page": Range(low=2e-7, high=5e-5),
    "squeeze_pages_per_s": Range(low=2e4, high=5e5),
    "coldness_exponent": Range(low=0.0, high=3.0, logarithmic=False),
    "coldness_tau_s": Range(low=0.02, high=20.0),
    "anon_weight": Range(low=0.05, high=8.0),
    "swap_write_share": Range(low=0.1, high=1.0, logarithmic=False),
    "swap_readahead_pages": Range(low=1.0, high=16.0),
    "swap_read_around_pages": Range(low=1.0, high=8.0),
    "file_readahead_pages": Range(low=1.0, high=64.0),
    "read_around_pages": Range(low=1.0, high=32.0),
    "protected_miss_exponent": Range(low=0.02, high=4.0),
    **{f"slot{i}_miss_exponent": Range(low=0.05, high=4.0) for i in range(SLOTS)},
    **{f"slot{i}_touch_scale": Range(low=0.02, high=20.0) for i in range(SLOTS)},
    "service_scale": Range(low=0.7, high=1.4),
    "service_sigma": Range(low=0.02, high=1.5),
    "anon_fault_cpu_s": Range(low=5e-7, high=1e-4),
    "file_fault_cpu_s": Range(low=1e-7, high=2e-5),
    "cpu_slowdown": Range(low=-0.5, high=3.0, logarithmic=False),
    "cpu_wait_share": Range(low=0.0, high=0.5, logarithmic=False),
    "cpu_wait_s": Range(low=2e-4, high=1e-1),
    "cpu_light_share": Range(low=0.02, high=1.0),
    "hiccup_share": Range(low=1e-4, high=0.05),
    "hiccup_factor": Range(low=1.0, high=40.0),
    "touch_scale": Range(low=0.02, high=4.0),
    "cold_touch_scale": Range(low=0.3, high=3.0),
    "fault_sigma": Range(low=0.05, high=2.0),
    "psi_file_scale": Range(low=0.05, high=1.5),
    "psi_anon_scale": Range(low=0.001, high=1.0),
    "psi_io_scale": Range(low=0.02, high=3.0),
    "pause_delay_s": Range(low=0.002, high=0.2),
    "limit_delay_s": Range(low=0.002, high=0.3),
}
LATER_PARAMETERS: Final = frozenset(
    {
        "device_stalls_per_s",
        "device_stall_s",
        "swap_read_around_pages",
        "cpu_wait_share",
        "cpu_wait_s",
        "cpu_light_share",
    }
)
"""Parameters that files of older versions lack. Their defaults leave those twins as they were."""
PARAMETER_NAMES: Final = tuple(f.name for f in fields(TwinParameters))
PARAMETER_INDEX: Final = {name: i for i, name in enumerate(PARAMETER_NAMES)}
_LOW: Final = np.array([RANGES[name].low for name in PARAMETER_NAMES])
_HIGH: Final = np.array([RANGES[name].high for name in PARAMETER_NAMES])
_LOG: Final = np.array([RANGES[name].logarithmic for name in PARAMETER_NAMES])


def to_array(parameters: Sequence[TwinParameters]) -> Array:
    """Return parameters as columns, ``(len(PARAMETER_NAMES), len(parameters))``."""
    rows = [[getattr(p, name) for p in parameters] for name in PARAMETER_NAMES]
    return np.array(rows, dtype=np.float64)


def from_mapping(values: Mapping[str, float]) -> TwinParameters:
    """Make parameters from values by name.

    Those of ``LATER_PARAMETERS`` may be missing.

    Raises:
        TwinError: If a name is unknown or missing, or a value is outside its range.
    """
    unknown = sorted(set(values) - set(PARAMETER_NAMES))
    missing = sorted(set(PARAMETER_NAMES) - LATER_PARAMETERS - set(values))
    if unknown or missing:
        raise TwinError(
            f"Twin parameters do not fit this version: unknown {unknown}, missing {missing}.",
            next_step="Fit the twin again with `stallward fit`.",
        )
    for name, value in values.items():
        bounds = RANGES[name]
        usable = isinstance(value, int | float)  # a file may contain anything
        rounding = 1e-9 * bounds.high
        if not usable or not bounds.low - rounding <= value <= bounds.high + rounding:
            raise TwinError(
                f"Twin parameter {name} is {value!r:.80}, outside {bounds.low:g} "
                f"to {bounds.high:g}.",
                next_step="Fit the twin again with `stallward fit`.",
            )
    return TwinParameters(**{name: float(value) for name, value in values.items()})


def from_column(column: Array) -> TwinParameters:
    """The inverse of :func:`to_array` for one column."""
    return TwinParameters(**dict(zip(PARAMETER_NAMES, map(float, column), strict=True)))


def as_mapping(parameters: TwinParameters) -> dict[str, float]:
    """Return the values by name."""
    return {name: float(value) for name, value in asdict(parameters).items()}


def to_unit(values: Array) -> Array:
    """Map columns of parameters into the unit cube that a fit searches, clipped to it."""
    shape = (-1,) + (1,) * (values.ndim - 1)
    low, high, log = _LOW.reshape(shape), _HIGH.reshape(shape), _LOG.reshape(shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values / low) / np.log(high / np.where(log, low, high / 2))
    linear = (values - low) / (high - low)
    return np.asarray(np.clip(np.where(log, logs, linear), 0.0, 1.0))


def from_unit(unit: Array) -> Array:
    """The inverse of :func:`to_unit`."""
    shape = (-1,) + (1,) * (unit.ndim - 1)
    low, high, log = _LOW.reshape(shape), _HIGH.reshape(shape), _LOG.reshape(shape)
    safe_low = np.where(log, low, 1.0)
    logs = safe_low * (np.where(log, high, 1.0) / safe_low) ** unit
    return np.asarray(np.where(log, logs, low + unit * (high - low)))
