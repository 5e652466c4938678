"""Which children the guardian has, in which order they start and how they end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.guardian.child import Child, Launch
from stallward.actuator.guardian.children import Wiring
from stallward.actuator.latency.config import PrometheusLatency, StatsdLatency


class Family:
    """The processes of one daemon beside its guardian.

    Args:
        config: The daemon's configuration.
        wiring: What connects them.
        launch_loop: Called at every start of the loop.
    """

    def __init__(
        self, config: DaemonConfig, wiring: Wiring, launch_loop: Callable[[], Launch]
    ) -> None:
        self._wiring = wiring
        policy = config.restart
        self.loop = Child(name="loop", launch=launch_loop, policy=policy)
        self.service = Child(name="service", launch=wiring.launch_service, policy=policy)
        self.all = [self.loop, self.service]
        """In the order in which they start."""
        self.recorder: Child | None = None
        if config.record is not None:
            launch = partial(wiring.launch_recorder, config.record)
            self.recorder = Child(name="recorder", launch=launch, policy=policy)
            self.all.insert(0, self.recorder)
        self.collector: Child | None = None
        if isinstance(config.latency, PrometheusLatency | StatsdLatency):
            launch = partial(wiring.launch_collector, config.latency)
            self.collector = Child(name="collector", launch=launch, policy=policy, vital=False)
            self.all.append(self.collector)

    def end_others(self, timeout_s: float) -> None:
        """Stop all but the loop, which has ended, and close what connected them."""
        self.service.end(timeout_s)
        if self.collector is not None:
            self.collector.end(timeout_s)
        self._wiring.close()
        if self.recorder is not None:
            self.recorder.end(timeout_s, ask=False)  # it ends by itself when all is on disk
