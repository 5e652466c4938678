"""A small twin for tests: an application that reads files, beside too much background work."""

from __future__ import annotations

from stallward.env.twin.inputs.exogenous import Exogenous, ProtectedProgram, SlotProgram
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.inputs.parameters import TwinParameters

HOG = SlotProgram(name="hog", units_per_s=10.0, anon_pages=(90_000.0,))
"""A background program with a working set of 352 MiB."""


def small_twin(*slots: SlotProgram) -> FittedTwin:
    """Make a twin with 400 MiB for an application of 156 MiB and ``slots``, by default a hog."""
    scenario = Exogenous(
        name="small",
        zone_bytes=400 << 20,
        swap_bytes=2 << 30,
        slo_ms=20.0,
        protected=ProtectedProgram(
            request_rate_per_s=20.0,
            service_s=0.005,
            file_pages=40_000.0,
            touch_file_pages=20_000.0,
        ),
        slots=slots or (HOG,),
    )
    return FittedTwin(scenario=scenario, draws=(TwinParameters(),), weights=(1.0,))
