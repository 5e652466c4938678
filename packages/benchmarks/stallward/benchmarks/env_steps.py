"""``stallward bench env``: environment steps per second, alone and in training, and memory."""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from stallward.agent.desired import ACTION_SIZES
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted
from stallward.models.registry import find_twin, twin_names
from stallward.training.progress import Report, silent

_BATCH: Final = 1024
_FEW, _MANY = 128, 8192
_SPEEDS: Final = {
    "twin_steps_per_s": _BATCH,
    f"twin_steps_per_s_{_FEW}": _FEW,
    f"twin_steps_per_s_{_MANY}": _MANY,
}
MEANINGS: Final = {
    **{
        key: f"decisions per second of one process, {batch} twin nodes at once"
        for key, batch in _SPEEDS.items()
    },
    "twin_bytes_per_node": "memory that each additional node takes",
    "ppo_steps_per_s": f"decisions per second while PPO trains on {_BATCH} nodes",
    "ppo_twin_share": "share of that time that the twin takes",
    "ppo_update_share": "share of the gradient steps; the rest is for deciding and for rollouts",
}


def bench_twins() -> tuple[FittedTwin, ...]:
    """The shipped twins."""
    return tuple(load_fitted(find_twin(name)) for name in twin_names())


def bench_environment(
    *, seconds: float = 10.0, report: Report = silent
) -> dict[str, float | None]:
    """Measure all speeds, each for about ``seconds``, and the memory of a node."""
    twins = bench_twins()
    figures: dict[str, float | None] = {}
    for k, (key, batch) in enumerate(_SPEEDS.items()):
        report(f"twin, {batch} nodes", k / (len(_SPEEDS) + 1))
        figures[key] = twin_steps_per_s(twins, seconds, batch)
    few, many = (
        Simulation(twins, batch, SimulationSettings(), seed=1).bytes_used
        for batch in (_FEW, _MANY)
    )
    figures["twin_bytes_per_node"] = (many - few) / (_MANY - _FEW)
    report("PPO", 1.0 - 1.0 / (len(_SPEEDS) + 1))
    from stallward.benchmarks.ppo_steps import ppo_speed  # noqa: PLC0415 - torch takes 0.5 GB

    figures.update(ppo_speed(twins, seconds, _BATCH))
    report("done", 1.0)
    return figures


def twin_steps_per_s(twins: tuple[FittedTwin, ...], seconds: float, batch: int = _BATCH) -> float:
    """Decisions per second of the batched twin under random actions."""
    simulation = Simulation(twins, batch, SimulationSettings(), seed=1)
    simulation.reset(np.ones(batch, dtype=bool))
    rng = np.random.default_rng(1)
    sizes = np.array(ACTION_SIZES)
    actions = [rng.integers(sizes, size=(batch, sizes.size)) for _ in range(8)]
    for action in actions:
        simulation.step(action)
    steps, start_s = 0, time.perf_counter()
    while (elapsed_s := time.perf_counter() - start_s) < seconds:
        done = simulation.step(actions[steps % len(actions)]).done
        simulation.reset(done)
        steps += 1
    return steps * batch / elapsed_s


def environment_rows(figures: dict[str, float | None]) -> list[tuple[str, str, str]]:
    """Rows of a table: measure, value, meaning."""
    return [(key, _format(key, value), MEANINGS[key]) for key, value in figures.items()]


def _format(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0%}" if key.endswith("_share") else f"{value:,.0f}"
