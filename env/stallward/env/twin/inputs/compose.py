"""Twins of scenarios with several applications, composed from fitted twins of single ones.

Such a scenario takes its applications and programs from scenarios that have fitted twins. What a
twin has of an application (its pages, its requests, what they touch and cost) is taken from the
twin with the same server and load; without one from a twin with the same server, whose requests
are scaled by their rate and their number of keys. What is known of the node (disk, reclaim, costs
in the kernel) is the mean of these twins. No recording of the applications together is used, so
such a twin is composed and not fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.errors import TwinError
from stallward.env.scenario.file import load_scenario, shipped_files
from stallward.env.scenario.scenario import BackgroundSpec, ProtectedSpec, Scenario
from stallward.env.twin.inputs.exogenous import (
    Exogenous,
    OtherApplication,
    ProtectedProgram,
    SlotProgram,
)
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted
from stallward.env.twin.inputs.parameters import (
    PARAMETER_INDEX,
    TwinParameters,
    from_column,
    from_unit,
    to_array,
    to_unit,
)
from stallward.models.registry import find_twin, twin_names

Array = NDArray[np.float64]

_OF_APPLICATION: Final = [
    PARAMETER_INDEX[name]
    for name in (
        "swap_read_around_pages",
        "protected_miss_exponent",
        "service_scale",
        "service_sigma",
        "cpu_slowdown",
        "cpu_wait_share",
        "cpu_wait_s",
        "cpu_light_share",
        "hiccup_share",
        "hiccup_factor",
        "touch_scale",
        "cold_touch_scale",
        "fault_sigma",
    )
]
"""The parameters that describe an application; those of its own twin hold for it."""
_OF_SLOT: Final = ("miss_exponent", "touch_scale")
_DRAWS: Final = 24
"""How many draws a composed twin has: as many as a fit leaves."""
_SHARES: Final = 41
"""The number of quantiles of the share of inactive file pages."""
_XZ_PAGES: Final = 186 * 256.0
"""The memory that ``xz -7`` needs to compress, by its manual page."""
_DESCRIBED: Final = {
    "xz": SlotProgram(name="xz", units_per_s=1.0, anon_pages=(_XZ_PAGES,), restarts=True)
}
"""Programs that no fitted twin has, by kind: described by their manuals, with defaults for what
these do not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A fitted twin and its scenario."""

    twin: FittedTwin
    scenario: Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """An application as it is taken from a twin."""

    twin: FittedTwin
    program: ProtectedProgram
    said: str


def compose(scenario: Scenario) -> FittedTwin:
    """Make the twin of a scenario with several applications.

    Args:
        scenario: The scenario; its applications have stated targets.

    Raises:
        TwinError: If no fitted twin has one of its applications or programs, their targets are
            not about the same quantile, or there are more than a twin holds.
    """
    known = [
        _Known(twin=load_fitted(find_twin(name)), scenario=load_scenario(name))
        for name in twin_names()
        if name in shipped_files()
    ]
    taken = [_application(one, known, scenario.name) for one in scenario.applications]
    programs = [_program(group, known, scenario.name) for group in scenario.background]
    quantiles = {one.slo.quantile for one in scenario.applications}
    if len(quantiles) > 1:
        raise TwinError(
            f"The targets of {scenario.name} are about different quantiles.",
            next_step="A twin judges all by one; `stallward compare --live` each by its own.",
        )
    first, *others = [
        OtherApplication(name=one.name, slo_ms=one.slo.latency_ms or 0.0, protected=own.program)
        for one, own in zip(scenario.applications, taken, strict=True)
    ]
    twins = [own.twin for own in taken]
    shares = np.concatenate([twin.scenario.inactive_file_shares for twin in twins])
    parameters = _parameters(twins, programs)
    return FittedTwin(
        scenario=Exogenous(
            name=scenario.name,
            zone_bytes=scenario.sandbox.limit_bytes,
            swap_bytes=max(twin.scenario.swap_bytes for twin in twins)
            if scenario.sandbox.swap_bytes
            else 0,
            slo_ms=first.slo_ms,
            protected=first.protected,
            slots=tuple(program for program, _ in programs),
            protected_name=first.name,
            others=tuple(others),
            cores=max(twin.scenario.cores for twin in twins),
            slo_quantile=quantiles.pop(),
            memory_bytes=max(twin.scenario.memory_bytes for twin in twins),
            inactive_file_shares=tuple(np.quantile(shares, np.linspace(0.0, 1.0, _SHARES))),
        ),
        draws=tuple(map(from_column, parameters[0].T)),
        weights=(1.0 / parameters.shape[2],) * parameters.shape[2],
        others=tuple(tuple(map(from_column, own.T)) for own in parameters[1:]),
        provenance={
            "composed_of": {
                one.name: own.said for one, own in zip(scenario.applications, taken, strict=True)
            }
        },
    )


def _application(spec: ProtectedSpec, known: Sequence[_Known], scenario: str) -> _Taken:
    same = [one for one in known if one.scenario.protected.server == spec.server]
    for one in same:
        if one.scenario.protected.load == spec.load:
            return _Taken(
                twin=one.twin,
                program=replace(one.twin.scenario.protected, workers=float(spec.workers)),
                said=one.scenario.name,
            )
    keys, rate_per_s = _keys_and_rate(spec)
    comparable = [one for one in same if all(_keys_and_rate(one.scenario.protected))]
    if not comparable or not keys or not rate_per_s:
        raise TwinError(
            f"No fitted twin has the application {spec.name!r} of {scenario}, and a twin of "
            "several applications is composed of such twins.",
            next_step="Use `stallward compare --live`, or a scenario of the applications of "
            f"other twins: {', '.join(twin_names())}.",
        )

    def difference(one: _Known) -> float:
        its_keys, its_rate_per_s = _keys_and_rate(one.scenario.protected)
        return abs(float(np.log(keys * rate_per_s / (its_keys * its_rate_per_s))))

    nearest = min(comparable, key=difference)
    its_keys, its_rate_per_s = _keys_and_rate(nearest.scenario.protected)
    program = nearest.twin.scenario.protected
    touches = keys / its_keys
    return _Taken(
        twin=nearest.twin,
        program=replace(
            program,
            request_rate_per_s=program.request_rate_per_s * rate_per_s / its_rate_per_s,
            touch_anon_pages=program.touch_anon_pages * touches,
            touch_file_pages=program.touch_file_pages * touches,
            touch_cold_pages=program.touch_cold_pages * touches,
            workers=float(spec.workers),
        ),
        said=f"{nearest.scenario.name} with {rate_per_s:g} requests of {keys} keys a second "
        f"in place of {its_rate_per_s:g} of {its_keys}",
    )


def _keys_and_rate(spec: ProtectedSpec) -> tuple[int, float]:
    """The keys of a request and the requests a second, of a load that is even; else 0 and 0."""
    options = dict(pairwise(spec.load.argv))
    try:
        rate_per_s = float(options.get("--rate", "0"))
    except ValueError:  # a rate that changes
        return 0, 0.0
    if "--wave" in options:
        return 0, 0.0
    return options.get("--request", "").count("%K"), rate_per_s


def _program(
    group: BackgroundSpec, known: Sequence[_Known], scenario: str
) -> tuple[SlotProgram, Array | None]:
    """A program, and the parameters of its slot in each draw where a twin has it."""
    for one in known:
        for i, its in enumerate(one.scenario.background):
            if (its.command, its.phases, its.repeat_s) == (
                group.command, group.phases, group.repeat_s,
            ):  # fmt: skip
                rows = [PARAMETER_INDEX[f"slot{i}_{name}"] for name in _OF_SLOT]
                program = one.twin.scenario.slots[i]
                return _of_group(program, group), _spread(one.twin)[rows]
    if group.kind in _DESCRIBED:
        return _of_group(_DESCRIBED[group.kind], group), None
    raise TwinError(
        f"No fitted twin has the program {group.name!r} of {scenario}.",
        next_step="Use `stallward compare --live`.",
    )


def _of_group(program: SlotProgram, group: BackgroundSpec) -> SlotProgram:
    return replace(
        program, name=group.name, floor_bytes=group.floor_bytes, restarts=group.restarts
    )


def _spread(twin: FittedTwin) -> Array:
    """Some draws of a twin, each as likely as another, ``(parameters, _DRAWS)``.

    Their order is the twin's own, so that the draws of two twins are paired at random.
    """
    seed = list(twin.scenario.name.encode())
    order = np.random.default_rng(seed).permutation(_DRAWS)
    return to_array(twin.draws)[:, twin.choose_by((order + 0.5) / _DRAWS)]


def _parameters(
    twins: Sequence[FittedTwin], programs: Sequence[tuple[SlotProgram, Array | None]]
) -> Array:
    """The parameters of each application in each draw, ``(applications, parameters, draws)``."""
    of_each = np.array([_spread(twin) for twin in twins])
    node = from_unit(np.mean([to_unit(own) for own in of_each], axis=0))
    for i, (_, own) in enumerate(programs):
        rows = [PARAMETER_INDEX[f"slot{i}_{name}"] for name in _OF_SLOT]
        default = to_array([TwinParameters()])[rows]
        node[rows] = default if own is None else own
    result = np.repeat(node[None], len(twins), axis=0)
    result[:, _OF_APPLICATION] = of_each[:, _OF_APPLICATION]
    return result
