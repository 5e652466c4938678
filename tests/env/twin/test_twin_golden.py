"""A frozen trajectory of the twin, which only a deliberate change of its physics may change.

``python tests/env/twin/test_twin_golden.py`` freezes it again after such a change. The first one
was computed by an implementation on numpy arrays, older than the compiled one. Changes since then:

- Reclaim no longer takes rounding errors of an exhausted pool for pages.
- Reclaim writes dirty pages where memory is short or a group is at its limit.
- Reads wait behind those of other groups, and few requests wait for a whole read.
- A group at its limit is charged for making room.
- First reads of files are no refaults, and are as fast as the disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.env.twin.batch import TwinBatch
from stallward.env.twin.inputs.exogenous import Exogenous, ProtectedProgram, SlotProgram
from stallward.env.twin.inputs.parameters import PARAMETER_NAMES, TwinParameters, to_array

Array = NDArray[np.float64]

FROZEN = Path(__file__).with_name("golden_twin.npz")
NODES, TICKS, KEPT_EVERY = 6, 60, 6
KEPT = (
    "resident", "wanted", "dirty", "touches_per_s", "probe_ms", "reported", "cursor_s", "progress",
    "psi_some_us", "psi_full_us", "psi_io_us", "refault_pages", "major_faults", "cpu_us", "units",
    "swap_in_pages", "swap_out_pages", "cpu_stall_us", "backlog_s",
)  # fmt: skip
SCENARIOS = (
    Exogenous(
        name="three programs",
        zone_bytes=600 << 20,
        swap_bytes=2 << 30,
        slo_ms=20.0,
        protected=ProtectedProgram(
            request_rate_per_s=15.0,
            service_s=0.0075,
            anon_pages=15_000.0,
            file_pages=38_000.0,
            cold_pages=38_000.0,
            touch_anon_pages=4_000.0,
            touch_file_pages=38_000.0,
            touch_cold_pages=37.0,
        ),
        slots=(
            SlotProgram(name="hog", units_per_s=100.0, anon_pages=(128_000.0,)),
            SlotProgram(
                name="writer",
                units_per_s=50.0,
                anon_pages=(5_000.0,),
                stream_pages_per_s=20e3,
                stream_span_pages=60e3,
                dirty_share=0.8,
            ),
            SlotProgram(
                name="phases",
                units_per_s=10.0,
                anon_pages=(2_000.0, 70_000.0, 12_000.0, 40_000.0),
                file_pages=(0.0, 20_000.0, 50_000.0, 9_000.0),
                loop_from_s=1.0,
                running=(1.0, 1.0, 0.0, 1.0),
            ),
        ),
    ),
    Exogenous(
        name="a busy server",
        zone_bytes=400 << 20,
        swap_bytes=200 << 20,
        slo_ms=3.0,
        protected=ProtectedProgram(
            request_rate_per_s=900.0,
            service_s=0.0006,
            workers=2.0,
            poisson=False,
            anon_pages=60_000.0,
            file_pages=9_000.0,
            touch_anon_pages=300.0,
            touch_file_pages=40.0,
        ),
        slots=(
            SlotProgram(
                name="scan",
                units_per_s=5.0,
                anon_pages=(100.0,),
                file_pages=(80_000.0,),
                cores=2.0,
            ),
        ),
    ),
)
SETTINGS: dict[str, Any] = {
    "coldness_exponent": (1.0, 0.3, 2.0, 1.0, 0.0, 1.5),
    "protected_miss_exponent": (1.0, 0.4, 2.5, 1.0, 0.2, 1.7),
    "slot0_miss_exponent": (0.8, 0.2, 1.3, 0.8, 0.1, 2.0),
    "read_latency_s": (90e-6, 4e-4, 5e-5, 90e-6, 2e-4, 1e-3),
    "limit_delay_s": (0.02, 0.06, 0.002, 0.02, 0.2, 0.1),
    "pause_delay_s": (0.01, 0.07, 0.002, 0.01, 0.1, 0.03),
    "device_sigma": (0.25, 0.5, 0.02, 0.25, 0.9, 0.1),
    "hiccup_share": (0.005, 0.05, 0.001, 0.005, 0.02, 0.01),
}
NOISES = ("arrivals", "meets", "misses", "hiccups", "spread", "fault_spread")


def parameters() -> Array:
    """Return the parameters, one column for each node."""
    values_of_nodes = to_array([TwinParameters()] * NODES)
    for name, values in SETTINGS.items():
        values_of_nodes[PARAMETER_NAMES.index(name)] = values
    return values_of_nodes


def scattered(tick: int, salt: int, *shape: int) -> Array:
    """Return numbers in [0, 1] that look random and are the same on every machine."""
    count = int(np.prod(shape))
    place = 1.0 + np.arange(count) + 1000.0 * tick + 77.0 * salt
    return np.asarray((np.modf(np.sqrt(place) * 1234.567)[0]).reshape(shape))


def noise(tick: int) -> dict[str, Array]:
    """Return the values of :class:`~stallward.env.twin.physics.state.Noise` in a tick."""
    numbers = {name: scattered(tick, k, 4, NODES) for k, name in enumerate(NOISES)}
    numbers["arrivals"] = np.floor(1.7 * numbers["arrivals"])
    for name in ("spread", "fault_spread"):
        numbers[name] = 4.0 * numbers[name] - 2.0
    return {**numbers, "device": 3.0 * scattered(tick, 99, NODES) - 1.5}


def levers(tick: int) -> tuple[NDArray[np.bool_], Array, Array, tuple[Array, Array]]:
    """Return the arguments of :meth:`TwinBatch.tick`, which change every seven ticks."""
    paused = scattered(tick // 7, 200, 4, NODES) < 0.25
    size = 4_000.0 + 60_000.0 * scattered(tick // 7, 201, 4, NODES)
    limits = np.where(scattered(tick // 7, 202, 4, NODES) < 0.5, np.inf, size)
    swappiness = 30.0 + 90.0 * scattered(tick // 7, 203, NODES)
    start = np.where(scattered(tick // 7, 204, NODES) < 0.5, 0.02, 0.1)
    return paused, limits, swappiness, (start, 2.0 * start)


def started() -> TwinBatch:
    """Make the nodes at the start of the trajectory."""
    twin = TwinBatch(SCENARIOS, NODES, seed=0)
    which = np.array([0, 0, 0, 1, 1, 0])
    twin.reset(
        np.ones(NODES, dtype=bool), which, parameters(), phase_s=0.7 * np.arange(float(NODES))
    )
    return twin


def play() -> dict[str, Array]:
    """Return the trajectory: the fields in ``KEPT``, every few ticks."""
    twin = started()
    series: dict[str, list[Array]] = {name: [] for name in KEPT}
    for tick in range(TICKS):
        for name, values in noise(tick).items():
            setattr(twin.noise, name, values)
        paused, limits, swappiness, dirty_ratios = levers(tick)
        twin.set_levers(paused, limits, swappiness, dirty_ratios)
        twin.advance(new_noise=False)
        if tick % KEPT_EVERY == KEPT_EVERY - 1:
            for name in KEPT:
                series[name].append(getattr(twin.nodes, name))
    return {name: np.array(values) for name, values in series.items()}


def test_the_twin_follows_the_frozen_trajectory() -> None:
    with np.load(FROZEN) as frozen:
        for name, values in play().items():
            np.testing.assert_allclose(
                values, frozen[name], rtol=1e-9, atol=1e-7, equal_nan=True, err_msg=name
            )


@pytest.mark.slow
@pytest.mark.timeout(900)  # everything may have to be compiled
def test_it_has_the_same_bits_without_vectors(tmp_path: Path) -> None:
    """With a numba that vectors have not been tried with, each node is computed by itself."""
    file = tmp_path / "plain.npz"
    code = (
        "import numba, sys\n"
        "numba.__version__ = '9.1.0'\n"
        "import numpy as np\n"
        "from stallward.env.twin.simd.backend import WIDTH\n"
        f"sys.path.insert(0, {str(FROZEN.parent)!r})\n"
        "from test_twin_golden import play\n"
        f"np.savez({str(file)!r}, width=WIDTH, **play())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.count("\n") == 1, "it says so once"
    assert "numba 9.1.0 is not one of those that vectors work with, >=0.65,<0.69" in done.stderr
    with np.load(file) as plain:
        assert plain["width"] == 1
        for name, values in play().items():
            assert values.tobytes() == plain[name].tobytes(), name


if __name__ == "__main__":
    np.savez_compressed(FROZEN, **play())  # type: ignore[arg-type]
