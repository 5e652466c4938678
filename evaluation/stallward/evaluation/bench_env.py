"""``stallward bench env``: how many environment steps a second, alone and while training."""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from stallward.agent.desired import ACTION_SIZES
from stallward.agent.errors import StallwardError
from stallward.env.simulation import Simulation, SimulationSettings
from stallward.env.twin.fitted import FittedTwin, load_fitted
from stallward.env.twin.parameters import TwinParameters
from stallward.env.twin.scenario import ProtectedProgram, SlotProgram, TwinScenario
from stallward.evaluation.progress import Report, silent
from stallward.models.registry import find_twin, twin_names

_BATCH: Final = 1024
_PAGES_PER_MIB: Final = 256.0
MEANINGS: Final = {
    "twin_steps_per_s": f"decisions per second of one process, {_BATCH} twin nodes at once",
    "ppo_steps_per_s": "the same while PPO trains on them, updates included",
}


def bench_twins() -> tuple[FittedTwin, ...]:
    """The shipped twins; where none is shipped, one of plain parameters."""
    try:
        found = tuple(load_fitted(find_twin(name)) for name in twin_names())
    except StallwardError:
        found = ()
    return found or (_plain(),)


def _plain() -> FittedTwin:
    hog = SlotProgram(name="hog", units_per_s=300.0, anon_pages=(300.0 * _PAGES_PER_MIB,))
    scenario = TwinScenario(
        name="plain",
        zone_bytes=600 << 20,
        swap_bytes=2 << 30,
        slo_ms=30.0,
        protected=ProtectedProgram(
            request_rate_per_s=15.0,
            service_s=0.01,
            file_pages=150.0 * _PAGES_PER_MIB,
            touch_file_pages=150.0 * _PAGES_PER_MIB,
        ),
        slots=(hog,),
    )
    return FittedTwin(scenario=scenario, draws=(TwinParameters(),), weights=(1.0,))


def bench_environment(
    *, seconds: float = 10.0, report: Report = silent
) -> dict[str, float | None]:
    """Measure both speeds, each for about ``seconds``."""
    twins = bench_twins()
    report("twin", 0.0)
    twin = twin_steps_per_s(twins, seconds)
    report("PPO", 0.5)
    ppo = ppo_steps_per_s(twins, seconds)
    report("done", 1.0)
    return {"twin_steps_per_s": twin, "ppo_steps_per_s": ppo}


def twin_steps_per_s(twins: tuple[FittedTwin, ...], seconds: float) -> float:
    """Decisions per second of the batched twin under random actions."""
    simulation = Simulation(twins, _BATCH, SimulationSettings(), seed=1)
    simulation.reset(np.ones(_BATCH, dtype=bool))
    rng = np.random.default_rng(1)
    sizes = np.array(ACTION_SIZES)
    actions = [rng.integers(sizes, size=(_BATCH, sizes.size)) for _ in range(8)]
    for action in actions:
        simulation.step(action)
    steps, start_s = 0, time.perf_counter()
    while (elapsed_s := time.perf_counter() - start_s) < seconds:
        done = simulation.step(actions[steps % len(actions)]).done
        simulation.reset(done)
        steps += 1
    return steps * _BATCH / elapsed_s


def ppo_steps_per_s(twins: tuple[FittedTwin, ...], seconds: float) -> float:
    """Decisions per second while stable-baselines3's PPO trains on the batched twin."""
    import torch  # noqa: PLC0415 - seconds and half a gigabyte that only training needs
    from stable_baselines3 import PPO  # noqa: PLC0415

    from stallward.env.vec import TwinVec  # noqa: PLC0415
    from stallward.training.torch_heads import HeadsPolicy  # noqa: PLC0415

    torch.set_num_threads(1)
    env = TwinVec(twins, _BATCH, seed=1)
    length = 32
    model = PPO(
        HeadsPolicy,
        env,
        n_steps=length,
        batch_size=4096,
        n_epochs=4,
        device="cpu",
        seed=1,
        policy_kwargs={"net_arch": [64, 64]},
    )
    model.learn(length * _BATCH)  # the first rollout pays for allocations
    start_s, steps = time.perf_counter(), 0
    while time.perf_counter() - start_s < seconds:
        model.learn(length * _BATCH, reset_num_timesteps=False)
        steps += length * _BATCH
    return steps / (time.perf_counter() - start_s)


def environment_rows(found: dict[str, float | None]) -> list[tuple[str, str, str]]:
    """Rows of a table: measure, value, meaning."""
    return [
        (key, "-" if value is None else f"{value:,.0f}", MEANINGS[key])
        for key, value in found.items()
    ]
