"""``stallward/Node-v0``: a real sandbox under real pressure as a Gymnasium environment.

It runs in real time: a step is one decision, which holds for two ticks of 0.1 s. Sensors, levers
and guard are the daemon's. From the first ``reset`` on it needs the means of the sandbox: root,
PSI, a writable memory controller and swap.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from stallward.actuator.guard.guard import Guard, GuardMemory
from stallward.agent.action_table import LEVELS
from stallward.agent.desired import SLOTS, decode_action
from stallward.agent.errors import UsageError
from stallward.agent.observation.encoder import BASIC, ObservationEncoder
from stallward.agent.observation.raw import NODE, RawFrame, to_raw
from stallward.env.gym.node_view import Scene
from stallward.env.gym.renderer import RENDER_MODES, Renderer
from stallward.env.gym.spaces import Actions, find_features, spaces, to_choices
from stallward.env.gym.twin_nodes import settings_of
from stallward.env.objective import check_quantile, mean_progress, reward, window_severity
from stallward.env.sandbox.block import make_workplace
from stallward.env.sandbox.data_cache import default_cache_dir
from stallward.env.sandbox.live_block import LiveBlock, LiveSettings
from stallward.env.sandbox.sandbox import open_sandbox
from stallward.env.scenario.file import load_scenario
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.models.errors import RegistryError
from stallward.models.registry import find_twin

TICK_S = 0.1
_RATE_WINDOW_S = 1.0
_DEFAULT_RATE_PER_S = 5.0
_DEFAULT_SLO_MS = 100.0


class NodeEnv(gymnasium.Env[NDArray[np.float32], Actions]):
    """A live block of a scenario; each episode starts a new one.

    Progress is that of the programs that are scheduled, relative to their rates on the scenario's
    fitted twin or, without one, to the best rate seen so far. The latency that counts is the p95 of
    the last second.

    Args:
        scenario: Name of a shipped scenario, or a TOML file.
        settings: Episode length, price, switch cost and guard budgets, or the fields that differ
            from their defaults, in plain JSON types. Nuisance settings have no effect: a real node
            brings its own.
        slo_ms: The target; by default the one that the scenario states, or its twin's.
        cache_dir: Folder for the scenario's data and the swap file.
        continuous: Whether actions are numbers from -1 to 1
            (:func:`stallward.env.gym.spaces.to_choices`).
        features: What is shown of an observation, one of ``FEATURE_SETS`` in
            :mod:`stallward.agent.observation.encoder`.
        render_mode: ``ansi`` for text, ``rgb_array`` for a picture.

    Raises:
        ScenarioError: If there is no such scenario.
        TwinError: If a setting is unknown.
        UsageError: If there is no such render mode or feature set, or a setting is for twins only.
    """

    # Not a ClassVar: Gymnasium declares it on the instance.
    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": RENDER_MODES,
        "render_fps": 5,
    }

    def __init__(
        self,
        scenario: str | Path = "detector-anon",
        settings: SimulationSettings | Mapping[str, Any] | None = None,
        slo_ms: float | None = None,
        cache_dir: str | Path | None = None,
        *,
        continuous: bool = False,
        features: str = BASIC.name,
        render_mode: str | None = None,
    ) -> None:
        self._continuous, self._features = continuous, find_features(features)
        self.observation_space, self.action_space = spaces(
            features=self._features, continuous=continuous
        )
        self.render_mode = render_mode
        self._renderer = Renderer(render_mode)
        self.settings = settings_of(settings)
        for name in ("action_table", "excess_price", "slow_price"):
            value, default = (getattr(s, name) for s in (self.settings, SimulationSettings()))
            if value != default:
                raise UsageError(
                    f"A real node takes no {name} but {default!r}, and {value!r} was given.",
                    next_step=f"Leave {name} out, or use stallward/Twin-v0.",
                )
        self.scenario = load_scenario(scenario)
        check_quantile(self.scenario.name, self.scenario.protected.slo.quantile)
        self._cache_dir = default_cache_dir() if cache_dir is None else Path(cache_dir)
        self._full_per_s = np.zeros(len(self.scenario.background))
        stated_ms = slo_ms or self.scenario.protected.slo.latency_ms
        self.slo_ms = stated_ms or _DEFAULT_SLO_MS
        self._rate_per_s = _DEFAULT_RATE_PER_S
        with contextlib.suppress(RegistryError):  # no twin: full speed is learned on the way
            twin = load_fitted(find_twin(self.scenario.name)).scenario
            self._full_per_s = np.array([slot.units_per_s for slot in twin.slots])
            self.slo_ms = stated_ms or twin.slo_ms
            self._rate_per_s = twin.protected.request_rate_per_s
        self._stack = contextlib.ExitStack()
        self._episode = contextlib.ExitStack()
        self._sandbox: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """End the running block, if any, and start a new one.

        The second value says under ``missing`` what this machine has no signal or lever for, and
        why.

        Raises:
            StallwardError: If this machine cannot hold the sandbox or a program fails.
        """
        super().reset(seed=seed, options=options)
        self._episode.close()
        self._open()
        live = LiveSettings(
            slo_ms=self.slo_ms,
            seed=int(self.np_random.integers(1, 1 << 30)),
            longest_s=self.settings.episode_s + 60.0,
            budgets=self.settings.budgets,
        )
        self._block = self._episode.enter_context(
            LiveBlock(self._sandbox, self.scenario, self._workplace, live)
        )
        self._guard = Guard(
            budgets=self.settings.budgets,
            floors_bytes=tuple(spec.floor_bytes for spec in self.scenario.background),
            tick_period_s=TICK_S,
        )
        self._memory = GuardMemory()
        self._encoder = ObservationEncoder(self.slo_ms)
        self._sequence = self._steps = 0
        self._began_s = self._due_s = time.monotonic()
        self._last = self._block.node.read(0, self._due_s)
        self._lever_state: tuple[object, ...] = ()
        raw = to_raw(self._last)
        names = tuple(group.name for group in self.scenario.background)
        scene = Scene(title=self.scenario.name, target_ms=self.slo_ms, slot_names=names)
        self._renderer.begin(0, scene, raw)
        return self._observe(raw), {"missing": self._block.node.missing()}

    def step(
        self, action: Actions
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Hold ``action`` for one decision.

        Raises:
            StallwardError: If a program of the block failed, or steps came so late that the block,
                which lasts a minute longer than an episode, is over.
        """
        ticks = self.settings.ticks_per_action
        observation = np.zeros(0, dtype=np.float32)
        choices = to_choices(action, LEVELS, continuous=self._continuous).tolist()
        violated, switches = np.zeros((2, ticks))
        for k in range(ticks):
            self._block.check()
            switches[k] = self._act(choices)
            self._wait()
            self._last = self._block.node.read(self._sequence, time.monotonic())
            raw = to_raw(self._last)
            observation = self._observe(raw)
            violated[k] = self._violated(raw)
            self._renderer.step(0, raw)
        self._steps += 1
        # Once a step is enough: it is a rate over a second, and costs reading all logs of work.
        progress = self._progress()
        price, switch_cost = self.settings.price, self.settings.switch_cost
        rewards = [
            reward(progress, price * float(severity), float(moved), switch_cost)
            for severity, moved in zip(violated, switches, strict=True)
        ]
        value = sum(rewards) / ticks
        ended = self._steps * ticks * TICK_S >= self.settings.episode_s
        info = {
            "progress": progress,
            "violated": float(violated.mean()),
            "switches": float(switches.sum()),
        }
        return observation, value, False, bool(ended), info

    def _observe(self, raw: RawFrame) -> NDArray[np.float32]:
        return self._encoder.encode(raw)[: self._features.size]

    def render(self) -> str | NDArray[np.uint8] | None:
        """The node as it is now, as text or as a picture, ``(400, 640, 3)``."""
        return self._renderer.render()

    def close(self) -> None:
        """End the block and remove the sandbox and everything in it."""
        self._episode.close()
        self._stack.close()
        self._sandbox = None

    def _open(self) -> None:
        if self._sandbox is not None:
            return
        spec = self.scenario.sandbox
        self._workplace = make_workplace(self.scenario, self._cache_dir)
        self._sandbox = self._stack.enter_context(
            open_sandbox(
                slots=len(self.scenario.background),
                limit_bytes=spec.limit_bytes,
                swap_bytes=spec.swap_bytes,
                compressed_swap=spec.compressed_swap,
                disk=spec.disk,
                cache_dir=self._cache_dir,
            )
        )

    def _act(self, action: list[int]) -> float:
        """Let the guard review the action and apply the result; return how many levers moved."""
        sample = self._last
        states = sample.slot_states[:SLOTS]
        desired = decode_action(action, states, self._guard.floors_bytes)
        verdict = self._guard.review(desired, sample, self._memory)
        self._memory = verdict.memory
        self._block.node.apply(verdict.granted, sample, time.monotonic())
        state: tuple[object, ...] = (verdict.granted.tuning, *verdict.granted.slots)
        moved = sum(a != b for a, b in zip(state, self._lever_state, strict=False))
        self._lever_state = state
        return float(moved)

    def _wait(self) -> None:
        self._sequence += 1
        self._due_s += TICK_S
        left_s = self._due_s - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)
        else:  # after a late tick the next ones keep their full length
            self._due_s -= left_s

    def _progress(self) -> float:
        """Mean share of full speed in the last second, of the programs scheduled all that time."""
        units, now_s = self._block.units(), time.monotonic()
        second = (now_s - _RATE_WINDOW_S, now_s)
        slots = range(len(self._full_per_s))
        rates = np.array([units.rate_per_s(i, *second) or 0.0 for i in slots])
        self._full_per_s = np.maximum(self._full_per_s, rates)
        share = np.clip(rates / np.maximum(self._full_per_s, 1e-9), 0.0, 1.0)
        runs = np.array(self._block.scheduled(*second), dtype=bool)
        return mean_progress(float(share[runs].sum()), float(runs.sum()))

    def _violated(self, raw: RawFrame) -> float:
        """How badly the last second missed the target."""
        return window_severity(
            raw.node[NODE["latency_p95_ms"]],
            raw.node[NODE["latency_age_s"]],
            time.monotonic() - self._began_s,
            self.slo_ms,
            self._rate_per_s,
        )
