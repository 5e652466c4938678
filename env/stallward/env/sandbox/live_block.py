"""One live block as something that can be begun, read and ended at will.

The block's programs run from a thread; sensors and levers are the daemon's own classes, held by
a keeper process that undoes everything should this process die.
"""

from __future__ import annotations

import contextlib
import os
import queue
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from stallward.actuator.config.tables import ControlConfig
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.journal.keeper import Keeper
from stallward.actuator.node.node import Node
from stallward.actuator.runtime.locks import claim_node
from stallward.env.errors import SandboxError
from stallward.env.recording.program_lines import parse_units
from stallward.env.recording.recording import Units
from stallward.env.sandbox.block import BlockSite, Workplace, run_block
from stallward.env.sandbox.daemon_config import site_config
from stallward.env.sandbox.data_cache import default_state_dir
from stallward.env.sandbox.sandbox import Sandbox
from stallward.env.scenario.scenario import Scenario

_BEGIN_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """How a live block is run."""

    slo_ms: float
    seed: int
    longest_s: float
    """The block ends by itself after this."""
    budgets: Budgets


class LiveBlock:
    """A running block; a context manager, inside which ``node`` reads and acts.

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
            claim_fd = claim_node(self._sandbox.paths)
            if claim_fd >= 0:
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put the levers back and end every program."""
        self._stack.close()

    def check(self) -> None:
        """Raise what the block's programs failed with, if they did."""
        if self._failure is not None:
            raise self._failure

    def units(self) -> Units:
        """The background's work so far."""
        texts = []
        for source in self.site.units:
            try:
                texts.append(Path(source.path).read_text(encoding="utf-8"))
            except OSError:  # not started yet
                texts.append("")
        return parse_units(texts, self.site.units)

    def _run(self) -> None:
        @contextlib.contextmanager
        def announce(site: BlockSite) -> Iterator[object]:
            self._began.put(site)
            yield site

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
            )
        except Exception as error:  # handed to whoever waits for the block
            self._failure = error
            self._began.put(error)

    def _end(self) -> None:
        # The block notices that its programs are gone and ends.
        while self._thread.is_alive():
            self._sandbox.kill()
            self._thread.join(timeout=0.5)


def _put_back(node: Node, keeper: Keeper) -> None:
    """Put the levers back, by the keeper where the node could not."""
    if not node.close():
        keeper.restore()
