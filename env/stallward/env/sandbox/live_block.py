"""A live block that its user can begin, observe and end at any time.

A thread runs the block's programs. Sensors and levers are the daemon's own classes; a keeper
process undoes all changes if this process dies.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from stallward.actuator.config.tables import ControlConfig
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.journal.keeper import Keeper
from stallward.actuator.node.node import Node
from stallward.actuator.runtime.locks import claim_node
from stallward.env.errors import SandboxError
from stallward.env.recording.program_lines import parse_units
from stallward.env.recording.recording import Units
from stallward.env.sandbox.block import BlockSite, Workplace, run_block, site_config
from stallward.env.sandbox.data_cache import default_state_dir
from stallward.env.sandbox.sandbox import Sandbox
from stallward.env.scenario.scenario import Scenario, is_scheduled

_BEGIN_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """The settings of a live block."""

    slo_ms: float
    """The latency target."""
    seed: int
    """The seed of the arrivals and the background."""
    longest_s: float
    """The block ends by itself after this time."""
    budgets: Budgets
    """The budgets of the guard."""


class LiveBlock:
    """A running block: a context manager. Inside it, ``node`` has the sensors and the levers.

    Raises:
        StallwardError: On entry, if a program or the sandbox fails.
    """

    def __init__(
        self, sandbox: Sandbox, scenario: Scenario, workplace: Workplace, settings: LiveSettings
    ) -> None:
        self._sandbox, self._scenario = sandbox, scenario
        self._workplace, self._settings = workplace, settings
        self._began: queue.SimpleQueue[BlockSite | Exception] = queue.SimpleQueue()
        self._failure: Exception | None = None
        self._start_s = math.inf
        self._stack = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._run, name="block", daemon=True)

    def __enter__(self) -> Self:
        """Start the programs and open sensors and levers."""
        folder = tempfile.TemporaryDirectory(dir=self._sandbox.folder)
        place = Path(self._stack.enter_context(folder))
        self._place = place
        try:
            self._thread.start()
            self._stack.callback(self._end)
            site = self._began.get(timeout=_BEGIN_TIMEOUT_S)
            if isinstance(site, Exception):
                raise site
            self.site = site
            for claim_fd in claim_node(self._sandbox.paths):
                self._stack.callback(os.close, claim_fd)
            keeper = Keeper.start(self._sandbox.paths, default_state_dir())
            self._stack.callback(keeper.close)
            self.node = Node(
                site_config(
                    site,
                    place,
                    control=ControlConfig(slo_ms=self._settings.slo_ms, seed=self._settings.seed),
                    guard=self._settings.budgets,
                ),
                keeper.hold,
                keeper.release,
            )
            keeper.hold(*self.node.levers.originals())
            self._stack.callback(_put_back, self.node, keeper)
        except queue.Empty as error:
            self._stack.close()
            raise SandboxError("The block's programs did not start in time.") from error
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Put the levers back and end every program."""
        self._stack.close()

    def check(self) -> None:
        """Make sure that the programs still run.

        Raises:
            StallwardError: If a program has failed, or the block has ended by itself.
        """
        if self._failure is not None:
            raise self._failure
        longest_s = self._settings.longest_s
        if not self._thread.is_alive() or time.monotonic() >= self._start_s + longest_s:
            raise SandboxError(
                f"The block ended after {longest_s:g} s, and its programs with it.",
                next_step="Start another one with reset(). An agent that learns for a minute or "
                "more does so between episodes.",
            )

    def units(self) -> Units:
        """The background's work so far."""
        texts = []
        for source in self.site.units:
            try:
                texts.append(Path(source.path).read_text(encoding="utf-8"))
            except OSError:  # not started yet
                texts.append("")
        return parse_units(texts, self.site.units)

    def scheduled(self, from_s: float, to_s: float) -> tuple[bool, ...]:
        """Whether the program of each slot is to run from the one time to the other (monotonic)."""
        span_s = (from_s - self._start_s, to_s - self._start_s)
        return tuple(is_scheduled(spec, *span_s) for spec in self._scenario.background)

    def _run(self) -> None:
        @contextlib.contextmanager
        def announce(site: BlockSite) -> Iterator[object]:
            self._began.put(site)
            yield site

        def begin(start_s: float) -> None:
            self._start_s = start_s

        try:
            run_block(
                self._sandbox,
                self._scenario,
                "together",
                announce,
                workplace=self._workplace,
                duration_s=self._settings.longest_s,
                burn_in_s=0.0,
                out_dir=self._place,
                seed=self._settings.seed,
                on_start=begin,
            )
        except Exception as error:  # raised in the thread that waits for the block
            self._failure = error
            self._began.put(error)

    def _end(self) -> None:
        # The block ends when it notices that its programs are dead.
        while self._thread.is_alive():
            self._sandbox.kill()
            self._thread.join(timeout=0.5)


def _put_back(node: Node, keeper: Keeper) -> None:
    """Put the levers back; the keeper does what the node cannot."""
    if not node.close():
        keeper.restore()
